#include "kernel/templates/column_time.h"

#include "kernel/analysis.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace egret::kernel {

namespace {

constexpr std::int64_t kColumnCopies = 4, kColumnLineBytes = 128, kColumnSectorBytes = 32;

std::int64_t quotient_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t in_sectors(std::int64_t row) {
  return quotient_up(row, kColumnSectorBytes) * kColumnSectorBytes;
}

/// Of arrays that are as large as the region's points: what is read at each of them.
std::int64_t bytes_of_point(const Region& region) {
  std::vector<int> all(region.axes.size());
  std::iota(all.begin(), all.end(), 0);
  const double points = double(about(points_of(region, all)));
  std::int64_t bytes = 0;
  for (const Operand& operand : region.operands) {
    double elements = 1;
    for (const Expr& extent : operand.shape)
      elements *= double(about(extent));
    if (operand.role == Role::Tensor && 2 * elements >= points)
      bytes += std::int64_t(size_of(operand.dtype));
  }
  return std::max(bytes, std::int64_t{1});
}

/// Stages over all points share most of what they compute.
double flops_of_point(const Region& region) {
  double most = 0;
  int stages = 0;
  for (const Stage& stage : region.stages)
    if (stage.axes.size() == region.axes.size()) {
      most = std::max(most, flops_of(stage));
      ++stages;
    }
  return most + 2 * stages;
}

/// Clocks in which the threads of a result combine what they have.
double meeting_clocks(std::int64_t threads) {
  constexpr double kLevel = 300;
  constexpr std::int64_t kInTurn = 8;
  double clocks = kLevel;
  for (; threads > 1; threads = quotient_up(threads, kInTurn))
    clocks += kLevel;
  return clocks;
}

} // namespace

std::int64_t widest_element(const Region& region) {
  std::size_t bytes = 1;
  for (const Operand& operand : region.operands)
    bytes = std::max(bytes, size_of(operand.dtype));
  return std::int64_t(bytes);
}

ColumnWork column_work(const Region& region, std::int64_t bytes) {
  return {double(bytes_of_point(region)) / double(bytes), flops_of_point(region) / double(bytes)};
}

bool reads_rows(const Region& region, int axis) {
  return std::ranges::all_of(region.stages, [&](const Stage& stage) {
    return stage.axes.size() != region.axes.size() ||
           std::ranges::all_of(stage.loads, [&](const Load& load) {
             const auto stride = load.source == Source::Operand
                                     ? stride_of(region, stage, load, axis)
                                     : std::optional<std::int64_t>(0);
             return stride == 1 || stride == 0;
           });
  });
}

double column_passes_clocks(const ColumnBlock& block, std::int64_t tiles, std::int64_t depth,
                            int passes, const Target& target) {
  constexpr double kWait = 700, kBytes = 48;
  const std::int64_t blocks = quotient_up(tiles, target.workers);
  const std::int64_t waves =
      quotient_up(blocks, std::max<std::int64_t>(1, kThreadsOfColumns / block.threads));
  const double waits =
      double(waves) * passes *
      (double(quotient_up(depth, block.down * kColumnCopies)) * kWait + meeting_clocks(block.down));
  const double each = std::max(double(in_sectors(block.row)) / kBytes,
                               double(quotient_up(block.row, kColumnLineBytes)));
  const double moved = double(blocks) * each * double(depth) * passes;
  return std::max(waits, moved) + 0.3 * std::min(waits, moved);
}

double column_sums_clocks(const ColumnBlock& block, const ColumnWork& work, std::int64_t tiles,
                          std::int64_t depth, std::int64_t parts, const Target& target) {
  constexpr double kMemoryBytes = 18, kCoreBytes = 40, kFlops = 100, kIssue = 1.5, kWait = 850,
                   kLast = 1500, kRound = 500;
  const std::int64_t slots =
      std::max<std::int64_t>(1, kThreadsOfColumns / block.threads) * target.workers;
  const std::int64_t blocks = tiles * parts, rows = quotient_up(depth, parts);
  const double each = work.arrays * double(rows) * double(in_sectors(block.row)) *
                      (block.row < kColumnLineBytes ? 1.2 : 1.0);
  const double lines =
      work.arrays * double(rows) * double(quotient_up(block.row, kColumnLineBytes));
  const double math = double(rows) * double(block.row) * (work.flops + kIssue) / kFlops;
  const auto whole = double(blocks / slots) * double(slots / target.workers);
  const std::int64_t left = blocks % slots;
  const auto busiest = double(quotient_up(left, target.workers));
  const double read = whole * each / kMemoryBytes +
                      std::max(double(left) * each / double(target.workers) / kMemoryBytes,
                               busiest * each / kCoreBytes);
  const double loads = double(quotient_up(blocks, slots)) *
                           double(quotient_up(rows, block.down * kColumnCopies)) * kWait +
                       (whole + busiest) * std::max(lines, math);
  double together = meeting_clocks(block.down);
  if (parts > 1)
    together += together + kLast + double(quotient_up(parts, block.down)) * kRound;
  return std::max(read, loads) + 0.3 * std::min(read, loads) + together;
}

} // namespace egret::kernel
