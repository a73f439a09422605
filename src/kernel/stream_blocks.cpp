#include "kernel/stream_blocks.h"

#include "kernel/contraction_tiles.h"
#include "kernel/knobs.h"
#include "kernel/label_terms.h"
#include "support/checked.h"
#include "support/fail.h"

#include <algorithm>
#include <cmath>

namespace egret::kernel {

namespace {

constexpr Knob kStreamBlocksKnobs[] = {
    {"mr", 1, 64}, {"nv", 1, 8}, {"rows", 1, 1024}, {"places", 1, 1024}, {"unroll", 1, 8}};

/// Columns and depths whose panels stay in the caches; vectors of a row that are written out.
constexpr std::int64_t kMostColumns = 512;
constexpr int kMostAcross = 16;

/// Depth of a product that is made once, for sums of the rows alone.
constexpr std::int64_t kMostDepth = 16384;

/// Places of a tile: with fewer, the sums of a row are read and written more often; with more, more
/// of what is masked is made.
constexpr double kUsualPlaces = 64, kUsualMaskedPlaces = 32;

/// Vectors of a tile's places, those nearest to the usual number of places first.
std::vector<int> by_places(std::vector<int> vectors, const StreamForm& form, int lanes) {
  const double usual = form.bounds.empty() ? kUsualPlaces : kUsualMaskedPlaces;
  std::ranges::stable_sort(
      vectors, {}, [&](int across) { return std::abs(std::log(double(across) * lanes / usual)); });
  return vectors;
}

} // namespace

std::string stream_refused(const StreamForm& form) {
  const bool once = form.passes == 1 && form.sums.empty() && form.products.size() == 1;
  const auto known = [](const ContractionForm& f) {
    return f.depth.extent.is_constant() && f.depth.extent.value() <= kMostColumns &&
           f.depth.extent.value() >= 1;
  };
  if (!std::all_of(form.products.begin(), form.products.end(), [&](const ContractionForm& f) {
        return known(f) || (once && f.depth.extent.is_constant() && f.depth.extent.value() >= 1 &&
                            f.depth.extent.value() <= kMostDepth);
      }))
    return "a product's depth is not known or too large";
  if (!std::all_of(form.sums.begin(), form.sums.end(), known))
    return "a sum's columns are not known or too many";
  return "";
}

std::string stream_tiles_refused(const Region& region, const StreamForm& form,
                                 const Target& target) {
  for (const auto* forms : {&form.products, &form.sums})
    for (const ContractionForm& f : *forms)
      if (auto why = matrix_refused(region, f, target); !why.empty())
        return why;
  return "";
}

bool stored_pairs_take_less(const Region& given, const Target& target) {
  // In multiply-adds of a score: writing and reading it, beside the exponentials that both compute.
  constexpr double kStoredScore = 20, kMostBytes = 128e6;
  if (target.unit(FragmentLayout::Tiles, DType::BF16) != nullptr)
    return false; // which streams take
  const Region region = prepared_for_stream(with_label_sums(given), StreamTakes::RoundedVectors);
  const FoundStream found = find_stream(region, StreamTakes::RoundedVectors);
  const StreamForm& form = found.form;
  if (!found.ok || !stream_refused(form).empty() || !form.bounds.empty()) // these skip tiles
    return false;
  double bytes = 4, stored = kStoredScore, streamed = 0; // of scores, at the largest sizes
  for (const AxisGroup* group : {&form.batch, &form.rows, &form.places})
    bytes *= double(group->extent.upper());
  for (const auto* forms : {&form.products, &form.sums})
    for (const ContractionForm& f : *forms) {
      if (!pairs_refused(region, f, target).empty())
        return false;
      stored += double(f.depth.extent.value()) / 2;
    }
  for (int number = 0; number < form.passes; ++number) {
    const StreamPass pass = stream_pass(region, form, number);
    for (const std::size_t p : pass.products)
      streamed += double(form.products[p].depth.extent.value());
    for (const std::size_t s : pass.sums)
      streamed += double(form.sums[s].depth.extent.value());
  }
  return bytes <= kMostBytes && stored < 0.9 * streamed;
}

StreamBlocks stream_blocks(const Schedule& schedule, const StreamForm& form, const Target& target) {
  const std::int64_t bytes =
      schedule.vector_bytes != 0 ? schedule.vector_bytes : target.vector_bytes;
  StreamBlocks t;
  t.matrix = schedule.mma == kMatrix;
  t.lanes = t.matrix ? kChunk : int(std::clamp<std::int64_t>(bytes / 4, 1, 64));
  t.mr = int(schedule.knob("mr", t.matrix ? 32 : 6));
  t.nv = int(schedule.knob("nv", t.matrix ? 2 : 4));
  t.unroll = int(schedule.knob("unroll", 2));
  t.nc = t.matrix ? t.nv : std::max(1, (target.vector_registers - 2) / (t.mr + 1));
  if (t.matrix)
    t.mr = int(round_up<std::int64_t>(t.mr, kTileRows));
  const std::int64_t rows = form.rows.extent.constant().value_or(1024),
                     places = form.places.extent.constant().value_or(1024);
  t.rows = int(round_up<std::int64_t>(
      std::min(schedule.knob("rows", 96), std::max<std::int64_t>(rows, 1)), t.mr));
  const std::int64_t together = t.matrix && t.nv % 2 != 0 ? 2 * t.nr() : t.nr();
  t.places = int(round_up<std::int64_t>(
      std::min(schedule.knob("places", 64), std::max<std::int64_t>(places, 1)), together));
  return t;
}

std::string blocks_refused(const Schedule& schedule, const StreamBlocks& blocks,
                           const Target& target) {
  if (auto why = refused_settings(schedule, target, kStreamBlocksKnobs, Takes::Matrix);
      !why.empty())
    return why;
  if (!schedule.mma.empty() && schedule.mma != kMatrix)
    return fmt::format("stream takes no @mma of {}", schedule.mma);
  if (blocks.matrix && tile_roles(blocks.mr / kTileRows, blocks.nv).left == 0)
    return "a register tile of more tiles than a matrix unit has";
  if (blocks.places > kMostAcross * blocks.lanes || (!blocks.matrix && blocks.mr * blocks.nv > 64))
    return "a tile of too much code";
  return "";
}

std::vector<Schedule> stream_space(const StreamForm& form, const Target& target, bool tiles) {
  std::vector<Schedule> space;
  const auto add = [&](const char* mma, int mr, int nv, int rows, int places, int unroll) {
    Schedule s;
    s.generator = "stream";
    s.mma = mma;
    s.knobs = {{"mr", mr}, {"nv", nv}, {"rows", rows}, {"places", places}, {"unroll", unroll}};
    if (std::find(space.begin(), space.end(), s) == space.end())
      space.push_back(std::move(s));
  };
  if (tiles)
    for (const int mr : {32, 16})
      for (const int rows : {128, 64, 256})
        for (const int places : {128, 256, 64})
          add(kMatrix, mr, 2, rows, places, 1);
  const int lanes = target.vector_bytes / 4;
  const bool many = target.vector_registers >= 32;
  for (const auto& [mr, nv] : many ? std::vector<std::pair<int, int>>{{6, 4}, {8, 3}, {12, 2}}
                                   : std::vector<std::pair<int, int>>{{4, 2}, {6, 2}, {3, 3}})
    for (const int across : by_places({nv, 2 * nv, 4 * nv}, form, lanes))
      for (const int rows : {96, 48, 192})
        for (const int unroll : {2, 4})
          if (mr * nv + nv + 1 <= target.vector_registers && across <= kMostAcross)
            add("", mr, nv, rows, across * lanes, unroll);
  return space;
}

} // namespace egret::kernel
