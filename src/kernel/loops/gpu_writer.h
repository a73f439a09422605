// Writes a GPU's program from a loop tree.
#pragma once

#include "kernel/loops/writer.h"

#include <optional>

namespace egret::kernel::loops {

/// Grid loops are dealt to blocks, warp and lane loops to the threads of a block: the innermost of
/// them to neighbours. Where no such loop is entered, all threads do the same, and the first one
/// stores. Sums are in registers; those of lanes are combined by all that have a part. Sums that
/// are shared out inside of a grid loop are completed by the block that arrives last at its
/// iteration, which does what comes behind them there. Copies near and results that other threads
/// read are in shared memory, with barriers of the block; what other blocks read is in workspaces,
/// with barriers of the grid. Matrix loops are products of whole warps.
class GpuWriter : public Writer {
public:
  GpuWriter(const Region& region, const Tree& tree, const Schedule& schedule, const Target& target);

private:
  void deal(std::span<const Expr> extents, const Here& h, const Dealt& code) override;
  void deal_points(std::span<const Expr> extents, const Here& h, const Dealt& code) override;
  void meet() override;
  void other_loop(const Tree& t, const Here& h) override;
  int memory(const std::string& name, DType dtype, const Expr& elements, const Here& h) override;
  Point storing(const Here& h) const override;
  void then(const Tree& t, const Here& h) override;
  bool is_known(const Tree& loop) const override;
  void copy_all(int from, int to, const Expr& elements) override;
  void fill(const NearCopy& copy, const Here& h) override;
  void arrange(NearCopy& copy) const override;
  void serial_loop(const Tree& t, const Here& h) override;
  void collapse(const Tree& t, const Here& h) override;
  KernelProgram end(const Expr& work) override;
  void each_digit(const Sums& s, const Tree& loop, const Here& h, const Code& code) override;
  void core_loops(const Tree& t, const Here& h) override;
  void sums(const Tree& t, const Here& h) override;
  void close_sums(Sums& s, const Here& h) override;
  bool masks_ends(const Tree& t) override;
  bool reaches(int maker, int reader) const override;
  void check_body(int stage, const Here& h) override;
  void together(Sums& s, const Here& h, std::vector<State>& states) override;
  void combine_parts(Sums& s, std::span<const Tree* const> reduced, const Expr& elements,
                     const Here& h) override;
  bool stores_alone(int stage) const override;
  void check_sums(const Sums& s) override;
  int threads_inside(const Tree& t) const override;
  void matrix_product(const Tree& t, const Here& h) override;
  int lanes_of_loop(const Tree& loop) const override;
  void digits_made(const Tree& loop, std::vector<Digit>& digits,
                   std::int64_t& copies) const override;

  /// Enters a loop of threads; the code stands under a guard where there are more of them.
  void threads_of_loop(const Tree& loop, const Here& h, const Code& code);
  bool sums_threads(int stage) const;
  /// The loops of threads of a node's sums along their results, outermost first; none where no
  /// threads have parts of them.
  struct Sharers {
    bool found = false; ///< threads that have parts
    bool apart = false; ///< which are no neighbours, or have vectors of results
    std::vector<const Tree*> results;
  };
  Sharers sharers_of(const Sums& s) const;
  /// What all threads have of a sum, in each of them: by shuffles of neighbours, or through shared
  /// memory.
  void combine_threads(Sums& s, const Here& h, std::vector<State>& states);
  std::vector<std::vector<int>> scratch(const Sums& s, std::int64_t elements);
  void combine_apart(Sums& s, const Sharers& sharers, const Here& h, std::vector<State>& states);
  /// The sums at a node, of the parts that all blocks have made of them.
  void recall(Sums& parts, const Tree& t, const Here& h);
  /// Throws Cannot where a stage's matrix loops are none of a warp's unit.
  void check_unit(int stage) const;
  /// The elements that a thread has of the results of a warp's product.
  void each_of_unit(const Tree& loop, const Here& h, const Code& code);
  /// One warp, of the threads that are here.
  void whole_warp(const Here& h, const Code& code);
  ValueId pair_of_unit(int stage, int value, const Tree& line, const Expr& at, const Tree& depth,
                       const Expr& first, const Here& h);
  /// The quarters of a factor's matrix in a copy near, by the warp together; nothing where it is
  /// not there as it is multiplied.
  std::optional<ValueId> matrix_of_copy(int stage, int value, const Tree& line, const Tree& depth,
                                        const Here& h, int quarters);
  /// Elements of a copy that one access may read, and with `whole` write as well.
  int width_of_copy(const NearCopy& copy, bool whole) const;
  /// How often the busiest bank of shared memory is asked when a warp reads the copy.
  std::int64_t bank_conflicts(const NearCopy& copy) const;
  /// Strides of a copy whose rows are `pad` elements apart.
  void lay_out(NearCopy& copy, int across, std::int64_t pad) const;
  /// All threads copy in groups of loads that are all made before the group's first store; false
  /// for a copy of unknown size.
  bool fill_in_groups(const NearCopy& copy, const Here& h, int width);
  /// `turns` loads of each thread from turn `first` on, of `count` for all threads.
  void fill_group(const NearCopy& copy, const Here& h, int width, const std::vector<Expr>& extents,
                  const Expr& first, std::int64_t turns, std::int64_t count);
  /// The same for a copy that the memory makes by itself; 0 where it cannot.
  int width_of_async_copy(const NearCopy& copy) const;
  /// All threads copy; `async`: the copies are under way.
  void fill_by_threads(const NearCopy& copy, const Here& h, int width, bool async);
  /// The copies of a loop over terms that may be under way while others are multiplied.
  std::vector<NearCopy> copies_ahead(const Tree& t, const Here& h);
  void copy_ahead(const Tree& t, std::vector<NearCopy> copies, const Here& h);
  /// All threads of the block wait for each other, or it cannot be.
  void meet_block(const Here& h);

  int threads_ = 32;
  Expr thread_;
  int counter_ = -1;                      ///< of the barriers of the grid
  std::map<const Tree*, Sums*> recalled_; ///< sums whose parts are all there
  Expr place_, parts_;                    ///< of these: their number, and how many each has
  std::map<std::pair<DType, std::int64_t>, std::vector<int>> scratch_; ///< by type and elements
};

} // namespace egret::kernel::loops
