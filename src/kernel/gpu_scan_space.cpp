#include "kernel/gpu_scan_space.h"

#include "kernel/analysis.h"
#include "kernel/gpu_nest.h"
#include "kernel/map_axes.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Points worth cutting. Rows that are enough for all multiprocessors: of blocks, and of threads
/// that have a row each.
constexpr std::int64_t kWorthCutting = 1 << 16, kFewBlocks = 128, kFewThreads = 1 << 16;

/// Points of a row, one after the other in a thread, that take longer than a barrier of the grid.
constexpr std::int64_t kLongForThread = 128;

std::int64_t rows_of(const Region& region, const ScanForm& form) {
  std::int64_t n = 1;
  for (int a : form.outer)
    n = std::min<std::int64_t>(n * about(region.axes[std::size_t(a)].extent), std::int64_t(1)
                                                                                  << 40);
  return n;
}

std::int64_t input_bytes(const Region& region, std::int64_t points) {
  std::int64_t bytes = 0;
  for (const Operand& o : region.operands)
    bytes += o.role == Role::Tensor ? std::int64_t(size_of(o.dtype)) : 0;
  return points * bytes;
}

/// Slices of each row that stay in the second cache, beside what is stored, until they are read
/// again.
std::int64_t together(const Region& region, std::int64_t rows, std::int64_t piece,
                      const Target& target) {
  const std::int64_t bytes = std::max<std::int64_t>(input_bytes(region, rows * piece), 1);
  return std::clamp<std::int64_t>(target.l2_bytes / 3 / bytes, 1, 1 << 20);
}

std::vector<Schedule> along(const Region& region, const ScanForm& form, const Target& target) {
  const std::int64_t rows = rows_of(region, form),
                     length = about(region.axes[std::size_t(form.axis)].extent);
  const int lanes = gpu_lanes(region, form.axis, 16);
  const std::int64_t vectors = (length + lanes - 1) / lanes;
  std::vector<Schedule> out;
  const auto offer = [&](int threads, int group, std::int64_t copies, std::int64_t tiles,
                         std::int64_t share) {
    Schedule s;
    s.knobs = {{"threads", threads}, {"group", group}, {"copies", copies}, {"lanes", lanes}};
    if (tiles > 0) {
      const std::int64_t piece = tiles * copies * group * lanes;
      s.knobs["piece"] = piece;
      if (share > 0)
        s.knobs["together"] =
            std::max<std::int64_t>(together(region, rows, piece, target) / share, 1);
    }
    out.push_back(std::move(s));
  };
  // What is cut follows from the region alone, so that results do not depend on the machine. How
  // many pieces are done together does not change them.
  if (rows < kFewBlocks && rows * length >= kWorthCutting && vectors >= 2048) {
    // In one pass memory is read once; totals of pieces are read about the square root of their
    // number of times. Small blocks, of which many run at the same time, wait least: on an H200,
    // cumsum of 16777216 f32 takes 0.055 ms by 128 threads and 0.059 by 256 (two passes 0.058), a
    // linear recurrence of 9000000 0.053 and 0.061.
    const auto in_one_pass = [&](int threads, std::int64_t copies, int wider) {
      if (rows * (length / (threads * copies * lanes * wider)) > kMostScanPosts)
        return;
      offer(threads, threads, copies, wider, 0);
      out.back().knobs["lanes"] = lanes * wider;
      out.back().knobs["onepass"] = 1;
    };
    // What a second cache holds is read again sooner than totals are waited for: on an H200,
    // cumsum of 4551376 f32 takes 0.0175 ms so and 0.0184 in one pass.
    constexpr std::int64_t kReadAgain = 24 << 20, kManyPieces = 512;
    if (form.commutes && input_bytes(region, rows * length) <= kReadAgain)
      offer(256, 256, 4, length >= kManyPieces * 1024 * lanes ? 2 : 1, 0);
    in_one_pass(128, 8, 1);
    in_one_pass(256, 4, 1);
    in_one_pass(512, 2, 1);
    in_one_pass(128, 4, 1);
    in_one_pass(256, 4, 4); // slices enough for the longest
    if (form.commutes) {    // else threads of a tile may not add up what they have of the next one
      offer(256, 256, 4, 2, 0);
      offer(256, 256, 4, 4, 0);
      offer(256, 256, 2, 8, 0);
      offer(256, 256, 4, 2, 1);
      offer(256, 256, 4, 1, 0);
      offer(512, 512, 2, 2, 0);
    }
  }
  if (vectors > 128) {
    const bool is_long = vectors >= 1024;
    offer(is_long ? 256 : 128, is_long ? 256 : 128, is_long ? 4 : 2, 0, 0);
    offer(256, 256, 2, 0, 0);
    offer(512, 512, 2, 0, 0);
    offer(128, 128, 4, 0, 0);
    offer(128, 32, 4, 0, 0);
    return out;
  }
  if (!form.commutes) { // a warp for each row, or a thread where these are short or many
    constexpr std::int64_t kShort = 4;
    const bool threads = vectors <= kShort || rows >= kFewThreads;
    for (const int group : {threads ? 1 : 32, threads ? 32 : 1})
      for (const std::int64_t copies : {4, 1})
        offer(128, group, std::min(copies, (vectors + group - 1) / group), 0, 0);
    return out;
  }
  int group = 1;
  while (group < 32 && group < vectors)
    group *= 2;
  const std::int64_t copies = std::clamp<std::int64_t>((vectors + group - 1) / group, 1, 4);
  offer(128, group, copies, 0, 0);
  offer(256, group, copies, 0, 0);
  if (group > 2)
    offer(128, group / 4 > 0 ? group / 4 : 1, 4, 0, 0);
  return out;
}

std::vector<Schedule> across(const Region& region, const ScanForm& form, int axis,
                             const Target& target) {
  const std::int64_t rows = rows_of(region, form),
                     length = about(region.axes[std::size_t(form.axis)].extent);
  std::vector<Schedule> out;
  const int widest = gpu_lanes(region, axis, 16);
  std::vector<int> lanes_of{1, std::min(widest, 2), widest};
  lanes_of.erase(std::unique(lanes_of.begin(), lanes_of.end()), lanes_of.end());
  for (const int lanes : lanes_of) {
    const std::int64_t threads = std::max<std::int64_t>(rows / lanes, 1);
    Schedule s;
    s.knobs = {{"threads", 128}, {"copies", lanes == 1 ? 8 : 4}, {"lanes", lanes}};
    std::int64_t pieces = 1;
    if (threads < kFewThreads && (rows * length >= kWorthCutting || length >= kLongForThread))
      pieces = std::min<std::int64_t>((2 * kFewThreads + threads - 1) / threads, length / 32);
    if (pieces > 1) {
      const std::int64_t piece = (length + pieces - 1) / pieces;
      s.knobs["piece"] = piece;
      out.push_back(s); // all pieces at once
      s.knobs["together"] = together(region, rows, piece, target);
      out.push_back(s);
      s.knobs.erase("piece");
      s.knobs.erase("together");
    }
    out.push_back(s);
  }
  std::stable_sort(out.begin(), out.end(), [](const Schedule& a, const Schedule& b) {
    return a.knobs.contains("piece") > b.knobs.contains("piece");
  });
  return out;
}

} // namespace

int gpu_scan_axis(const Region& region, const ScanForm& form) {
  return lane_axis(region, form, vector_score(region, all_stages(region), form.axis));
}

std::vector<Schedule> gpu_scan_schedules(const Region& region, const ScanForm& form,
                                         const Target& target) {
  const int axis = gpu_scan_axis(region, form);
  return axis == form.axis ? along(region, form, target) : across(region, form, axis, target);
}

} // namespace egret::kernel
