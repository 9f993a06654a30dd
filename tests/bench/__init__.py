"""Throughput and CPU of mirrorlake beside MirrorMaker 2, on the same brokers in one invocation: `python -m tests.bench`.

| module        | holds                                                                          |
|---------------|--------------------------------------------------------------------------------|
| `figures`     | what was measured, and the arithmetic on it                                    |
| `processes`   | CPU-seconds of a process tree, and how busy the rest of the machine was        |
| `workload`    | the records, and how they are written to the source                            |
| `copies`      | when a copy on the target is complete, and the proof that it is                |
| `contest`     | the source and the targets, kept for the whole invocation; clean targets each  |
| `mm2`         | MirrorMaker 2 in dedicated mode                                                |
| `worker`      | a process with a Spark session that runs mirrorlake's verbs when it is told to |
| `lakeside`    | mirrorlake: land, republish, both                                              |
| `report`      | tables and JSON                                                                |
| `harness`     | options, lines of progress, a failure that ends no other pass                  |
| `targets`     | 1, 2 and 3 targets, a command of its own: `python -m tests.bench.targets`      |
"""
