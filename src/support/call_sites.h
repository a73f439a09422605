// Where a program records its operations: by line of its source, and by the ranges that it names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::call_sites {

/// A place from which operations are recorded; 0 is unknown.
using Id = std::uint32_t;

/// While one lives, here() looks where it is called from.
class Wanted {
public:
  Wanted() noexcept;
  ~Wanted();
  Wanted(const Wanted&) = delete;
  Wanted& operator=(const Wanted&) = delete;
};
bool wanted() noexcept;

/// The place that the calling thread is at: what has called it, and the ranges that are open.
/// 0 when no place is wanted.
Id here();

/// Of the derivative of an operation that was recorded at `id`: the same line, in the range
/// "gradient" and those of the operation.
Id gradient_of(Id id);

/// A line of a text that operations were read from.
Id at(std::string_view file, int line);

/// Opens and closes a range of the calling thread; ranges are within those that are open.
void open_range(std::string_view name);
void close_range() noexcept;
/// "encoder/layer 3"
const std::string& open_ranges() noexcept;

/// The places of a graph's nodes, by NodeId, for whoever is given the graph later; `hash` is its
/// ir::canonical_hash. Forgotten when no place is wanted any more.
void note(std::uint64_t hash, std::vector<Id> places);
/// Empty when they are not known, or are not `size`.
std::vector<Id> places_of(std::uint64_t hash, std::size_t size);

struct Place {
  std::string file;   ///< empty: unknown
  int line = 0;       ///< from 1
  std::string within; ///< ranges, "encoder/layer 3"
  friend bool operator==(const Place&, const Place&) = default;
};

/// By place. The line is that of the innermost call which is not egret's own, by `addr2line` of GNU
/// binutils, where it is on the PATH and the program was compiled with -g.
std::vector<Place> locate(std::span<const Id> ids);

} // namespace egret::call_sites
