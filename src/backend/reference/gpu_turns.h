// How the warps of an interpreted launch wait for each other and share work: barriers of a block
// and of the grid, combinations over a block, the choice of a last block, drawn iterations.
#pragma once

#include "backend/reference/number.h"
#include "backend/reference/worker_turns.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace egret::backend::reference {

/// Warps are numbered through all blocks: block * warps + warp.
class GpuTurns {
public:
  GpuTurns(int blocks, int warps)
      : warps_(warps), blocks_(static_cast<std::size_t>(blocks)), turns_(blocks * warps) {}

  void run(const std::function<void(int block, int warp)>& body);

  /// All warps of the block; barrier `number` > 0: of `warps` of them.
  void barrier(int block, int warp, int number, int warps);
  /// All warps of all blocks, or of the block's cluster of so many.
  void grid_barrier(int block, int warp, int cluster);
  /// Until `ready` holds.
  void wait(int block, int warp, std::function<bool()> ready, const char* what) {
    turns_.wait(block * warps_ + warp, std::move(ready), what);
  }
  /// What all warps of the block put in, by warp. Each warp comes as often as the others.
  std::vector<std::vector<Number>> exchange(int block, int warp, std::vector<Number> mine);
  /// Whether the block is the last of `arrivals` with this key. A barrier of the block, or with a
  /// number of `warps` of its warps; of a program the same warps come each time.
  bool last(int block, int warp, std::int64_t key, std::int64_t arrivals, int number, int warps);
  /// An element of a counter, once a launch, with a value; that value as soon as it is posted; and
  /// the end of the first `count` elements when all blocks have come.
  void post(int counter, std::int64_t place, Number value);
  Number await(int block, int warp, int counter, std::int64_t place);
  void clear_posts(int block, int warp, int counter, std::int64_t count);
  bool has_posts() const { return !posts_.empty(); }
  /// The `n`-th item that the block takes in loop `loop`: its own number first, then drawn ones.
  std::int64_t draw(int block, int loop, std::size_t n);

private:
  struct Meeting { ///< arrivals, and how often all have come
    int come = 0;
    std::int64_t round = 0;
  };
  struct Exchange {
    std::vector<std::vector<Number>> parts;
    int come = 0, gone = 0;
  };
  struct Block {
    std::map<int, Meeting> barriers;
    std::map<std::int64_t, Exchange> exchanges;
    std::map<std::int64_t, bool> last;
    std::vector<std::int64_t> visits; ///< by warp: of exchange(); then of last()
    std::map<int, std::vector<std::int64_t>> drawn;
  };
  void meet(Meeting& meeting, int worker, int count, const char* what);
  std::int64_t& visit(Block& block, int warp, bool of_last);

  int warps_;
  std::vector<Block> blocks_;
  Meeting grid_;
  std::map<int, Meeting> clusters_;
  std::map<std::int64_t, std::int64_t> arrived_;
  std::map<std::pair<int, std::int64_t>, Number> posts_; ///< by counter and element
  std::map<int, int> cleared_;                           ///< by counter: warps that have come
  std::map<int, std::int64_t> next_;                     ///< by drawn loop
  WorkerTurns turns_;
};

} // namespace egret::backend::reference
