"""What mirrorlake costs and how late it is, beside MirrorMaker 2 in one invocation: `python -m tests.bench`.

| module      | holds                                                                          |
|-------------|--------------------------------------------------------------------------------|
| `options`   | the command line: suites, subjects, and how much of everything                 |
| `results`   | what was measured, in one JSON file, and the tables made from it               |
| `processes` | CPU-seconds of a process tree, and how busy the rest of the machine was        |
| `workload`  | the records, and how they are written to the source                            |
| `copies`    | when a copy on the target is complete, and the proof that it is                |
| `contest`   | the source and the targets                                                     |
| `mm2`       | MirrorMaker 2 in dedicated mode                                                |
| `worker`    | a process with a Spark session that runs mirrorlake's verbs when it is told to |
| `always_on` | suite: start, latency, cores, memory and bursts of a running mirror            |
| `drain`     | suite: a full source to 1, 2 and 3 targets, and a drain with nothing new       |
| `growth`    | `python -m tests.bench.growth`: costs by partitions, files, days and backlog   |
| `generated` | the lakes and records of the growth suites, and clusters that are played       |
"""
