// Sorts along one axis on a CPU: the template, which chooses the way by an estimate of its time.
#include "kernel/analysis.h"
#include "kernel/cpu_sort.h"
#include "kernel/families.h"
#include "kernel/knobs.h"

#include <algorithm>
#include <cmath>

namespace egret::kernel {

namespace {

/// Limits of ways whose code or time grows with what is kept, or with the length.
constexpr std::int64_t kMostInserted = 32, kMostFiltered = 2048, kLongestNetworkRow = 2048;
constexpr Knob kSortKnobs[] = {{"way", 0, 4}, {"bits", 2, 12}, {"block", 4, 32}};

std::string refused(const SortForm& form, SortWay way, std::int64_t block) {
  if (way == SortWay::Rows || way == SortWay::Slices)
    return {};
  if (!form.kept.is_constant() || form.kept.value() < 1 || !form.length.is_constant())
    return "its rows' length, or how much of them is wanted, is not a known number";
  const std::int64_t kept = form.kept.value(), length = form.length.value();
  if (way == SortWay::Network) {
    if ((block & (block - 1)) != 0)
      return "a block is no power of two";
    return form.rows.empty() || length > kLongestNetworkRow ? "its rows are one, or long" : "";
  }
  if (way == SortWay::Insert)
    return kept > kMostInserted || kept >= length ? "not the first few of a row are wanted" : "";
  return kept > kMostFiltered || length <= filter_memory(kept)
             ? "not the first few of long rows are wanted"
             : "";
}

NetworkShape network_shape(const Region& region, const SortForm& form, std::int64_t bytes,
                           std::int64_t block) {
  NetworkShape shape;
  shape.length = form.length.value();
  shape.kept = form.kept.value();
  shape.block = int(block);
  shape.lanes =
      int(std::max<std::int64_t>(1, bytes / std::int64_t(size_of(item_type(form, true).word))));
  const int along = network_axis(region, form, shape.lanes);
  if (along >= 0 && region.axes[std::size_t(along)].extent.upper() == 1)
    shape.lanes = 1;
  return shape;
}

/// Nanoseconds, as one core of 3 GHz with vectors of 32 bytes needs them; only their ratios count.
struct SortEstimate {
  const Region& region;
  const SortForm& form;
  const Target& target;
  double rows = double(about(form.row_count)), length = double(about(form.length)),
         kept = double(about(form.kept));
  ItemType type = item_type(form, false);

  double radix(double items, int bits) const {
    const double passes = (form.bits + bits - 1) / bits, digits = double(1 << bits);
    const double move = (type.paired ? 2.2 : 1.6) + (bits > 8 ? 0.5 : 0);
    return passes * (items * (0.6 + move) + digits * 0.6);
  }
  double shared(double all, double pieces) const {
    return all / std::max(1.0, std::min(double(target.workers), pieces));
  }
  double of(SortWay way, int bits, std::int64_t block) const {
    const double read = 0.4 * length;
    switch (way) {
    case SortWay::Rows:
      return shared(rows * (2 * read + radix(length, bits)), rows);
    case SortWay::Slices:
      return shared(1.3 * rows * (2 * read + radix(length, bits)),
                    rows * std::max(1.0, std::min(double(kMostSlices),
                                                  std::floor(length / double(kSliceLength))))) +
             2e4;
    case SortWay::Insert: {
      // The i-th element of a random order is among the first k so far with chance k / i.
      const double taken = kept * (1 + std::log(std::max(1.0, length / kept)));
      return shared(rows * (read + taken * (4 + 1.2 * kept)), rows);
    }
    case SortWay::Filter: {
      // The first sort is of elements that are not compared; then what is better is gathered until
      // the next elements may not fit.
      const double room = double(filter_memory(form.kept.value())), first = room - kFiltered;
      const double taken = kept * std::log(std::max(1.0, length / first));
      const double sorts = std::max(1.0, std::ceil(taken / std::max(1.0, first - kept)));
      return shared(rows * (read + radix(first, bits) + sorts * radix(kept + taken / sorts, bits)),
                    rows);
    }
    case SortWay::Network: {
      const NetworkShape shape = network_shape(region, form, target.vector_bytes, block);
      const NetworkWork work = network_work(shape);
      const double exchange = type.paired ? 3.2 : 1.1, transfer = type.paired ? 0.8 : 0.4;
      double vectors = 1;
      const int along = network_axis(region, form, shape.lanes);
      for (const int a : form.rows) {
        const double n = double(about(region.axes[std::size_t(a)].extent));
        vectors *= a == along ? std::ceil(n / shape.lanes) : n;
      }
      const double single = 1.0 * shape.lanes * (length + kept);
      return shared(vectors * (double(work.exchanges) * exchange +
                               double(work.transfers) * transfer + single),
                    vectors);
    }
    }
    return 0;
  }
};

class SortGenerator : public Generator {
public:
  std::string name() const override { return "sort"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const auto form = sort_form(region);
    if (!form)
      return {};
    const SortEstimate estimate{region, *form, target};
    std::vector<std::pair<double, Schedule>> out;
    const auto offer = [&](SortWay way, int bits, std::int64_t block) {
      if (!refused(*form, way, block).empty())
        return;
      Schedule s;
      s.generator = name();
      s.knobs = {{"way", int(way)}};
      if (way == SortWay::Network)
        s.knobs["block"] = block;
      else if (way != SortWay::Insert)
        s.knobs["bits"] = bits;
      out.emplace_back(estimate.of(way, bits, block), std::move(s));
    };
    for (const int bits : {4, 6, 8, 11})
      for (const SortWay way : {SortWay::Rows, SortWay::Slices})
        offer(way, bits, 0);
    offer(SortWay::Insert, 0, 0);
    for (const int bits : {6, 8})
      offer(SortWay::Filter, bits, 0);
    for (const int block : {8, 16})
      offer(SortWay::Network, 0, block);
    std::ranges::stable_sort(out, {}, [](const auto& each) { return each.first; });
    std::vector<Schedule> schedules;
    for (auto& [time, schedule] : out)
      schedules.push_back(std::move(schedule));
    return schedules;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kSortKnobs); !why.empty())
      return {false, {}, why};
    const auto form = sort_form(region);
    if (!form)
      return {false, {}, "it is no sort"};
    const auto way = static_cast<SortWay>(schedule.knob("way", 0));
    const std::int64_t block = schedule.knob("block", 8);
    if (auto why = refused(*form, way, block); !why.empty())
      return {false, {}, why};
    const std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
    if (way == SortWay::Network && !proves_less_equal(form->row_count, Expr(0)))
      return {true, sort_by_network(region, *form, network_shape(region, *form, bytes, block)), ""};
    const int stages[] = {form->stage};
    const int lanes = std::min(lanes_for(region, stages, bytes),
                               int(bytes / std::int64_t(size_of(item_type(*form, false).word))));
    const CpuRadixShape shape{int(schedule.knob("bits", 8)), std::max(1, lanes)};
    return {true,
            sort_by_radix(region, *form, way == SortWay::Network ? SortWay::Rows : way, shape), ""};
  }
};

} // namespace

const Generator& sort_generator() {
  static const SortGenerator generator;
  return generator;
}

} // namespace egret::kernel
