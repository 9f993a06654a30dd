"""From which sample to which sample each position was the current one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mirrorlake.lag.columns import NOTHING, Flags, Ints, lists, rows


class PositionSpans(NamedTuple):
    """Positions of one subject, each with its first and last sample.

    `row` is the row of each position in the table of sampled positions. `moments` numbers the subject's samples among those of
    all subjects.
    """

    row: Ints
    position: Ints
    first: Ints
    last: Ints
    moments: Ints

    def repeat_at_samples(self, grid_rows: Ints, positions: Ints, width: int) -> tuple[Ints, Ints]:
        count = self.last - self.first + 1
        sample = np.arange(count.sum()) + np.repeat(self.first - (np.cumsum(count) - count), count)
        return np.repeat(grid_rows * width, count) + self.moments[sample], np.repeat(positions, count)

    def only(self, which: Any) -> PositionSpans:
        return PositionSpans(self.row[which], self.position[which], self.first[which], self.last[which], self.moments)


class SampleTimes:
    """The samples of all subjects; those before `since` (microseconds) give positions but are not shown."""

    def __init__(self, samples: pa.Table, *, since: int) -> None:
        self._since = since
        self._times: dict[tuple[str, str], tuple[Ints, Flags]] = {}
        counts, columns = lists(samples["looks"])
        end = 0
        for subject, count in zip(rows(samples, ("subject", "name")), counts, strict=True):
            begin, end = end, end + count
            times, number = np.unique(columns["seen_at"][begin:end], return_inverse=True)
            complete = np.bincount(number, weights=columns["complete"][begin:end] > 0, minlength=len(times)) > 0
            self._times[subject] = times, complete

    def __contains__(self, subject: object) -> bool:
        return subject in self._times

    @cached_property
    def moments(self) -> Ints:
        shown = [times[np.searchsorted(times, self._since) :] for times, _ in self._times.values()]
        return np.unique(np.concatenate(shown)) if shown else np.empty(0, np.int64)

    def spans(self, sampled: pa.Table) -> Iterator[PositionSpans]:
        """Yield the positions of each subject with their first and last samples; `sampled` is ordered by subject."""
        counts, columns = lists(sampled["samples"])
        ends = np.cumsum(counts)
        row = np.repeat(np.arange(len(counts)), counts)
        subjects = list(rows(sampled, ("subject", "name")))
        begin = 0
        while begin < len(subjects):
            end = begin + 1
            while end < len(subjects) and subjects[end] == subjects[begin]:
                end += 1
            part = slice(ends[begin] - counts[begin], ends[end - 1])
            times, complete = self._times[subjects[begin]]
            yield self._spans_of_subject(
                times, complete, row[part], columns["seen_at"][part], columns["position"][part]
            )
            begin = end

    def _spans_of_subject(
        self, times: Ints, complete: Flags, row: Ints, seen_at: Ints, position: Ints
    ) -> PositionSpans:
        """Return the spans of one subject.

        A complete sample ends the positions that it lacks: a restarted sampler cannot know what went away before.
        """
        count = len(times)
        sample = np.searchsorted(times, seen_at)
        known = times[np.minimum(sample, count - 1)] == seen_at
        row, sample, position = row[known], sample[known], position[known]
        key = row * count + sample
        if np.any(key[1:] < key[:-1]):
            order = np.argsort(key, kind="stable")
            row, sample, position = row[order], sample[order], position[order]
        completes = np.append(np.flatnonzero(complete), count)
        ended = completes[np.searchsorted(completes[:-1], sample, side="right")]
        following = np.full(len(sample), count)
        following[:-1] = np.where(row[1:] == row[:-1], sample[1:], count)
        shown = np.searchsorted(times, self._since)
        first, last = np.maximum(sample, shown), np.minimum(ended, following) - 1
        moments = np.searchsorted(self.moments, times)
        return PositionSpans(row, position, first, last, moments).only((last >= first) & (position != NOTHING))
