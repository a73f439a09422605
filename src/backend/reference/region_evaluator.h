// Chosen results of a region, computed on demand from its semantics in f64: what full-size kernels
// are verified with.
#pragma once

#include "backend/reference/compare.h"
#include "backend/reference/expr_code.h"
#include "backend/reference/host_array.h"
#include "kernel/region.h"
#include "support/thread_pool.h"

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace egret::backend::reference {

/// Evaluates points of a region's stages, following loads of earlier stages, indirect coordinates,
/// holes, reductions and scans. Every value of a body is rounded once to its dtype, as the graph
/// reference does, and carries its bound (estimate.h). Results of reductions and scans are
/// remembered by point. Long reductions are shared out among threads: their terms are made in
/// parallel and added in order, so that results do not depend on how many threads there are.
class RegionEvaluator {
public:
  /// `operands` by region operand: the memory as an array of elements in the order of offsets (its
  /// dims do not matter); a Scalar operand has one element. `sizes` binds every symbol of the
  /// region. `threads`: that long reductions may take; 0: as many as the machine has.
  RegionEvaluator(const kernel::Region& region, const Bindings& sizes,
                  std::vector<const HostArray*> operands, int threads = 0);
  ~RegionEvaluator();

  /// The extents of the axes that index the results of `output`'s stage.
  const Dims& domain(int output) const;
  /// Elements of the output's memory.
  std::int64_t elements(int output) const;
  /// Where a point of the domain goes: an offset into the output's memory; nothing when the map
  /// drops it.
  std::optional<std::int64_t> offset_of(int output, const Dims& point);
  /// The output's value at a point of its domain: for a scatter, the update.
  Estimate at(int output, const Dims& point);

  /// Values of the elements `offsets` of an output, by offset. Elements that no point writes are
  /// missing; those of a scatter start from `initial`, the memory before the kernel ran. Walks over
  /// the whole domain, but evaluates only what goes to `offsets`.
  std::unordered_map<std::int64_t, Estimate> at_offsets(int output,
                                                        const std::vector<std::int64_t>& offsets,
                                                        const HostArray* initial = nullptr);

private:
  struct LoadCode {
    struct Hole {
      GuardCode valid;
      Number fill;
    };
    std::vector<ExprCode> coords;
    std::vector<Hole> holes;
    ExprCode layout; ///< over the coordinates
  };
  struct StageCode {
    Dims extents;               ///< of its axes
    Dims result;                ///< of its result axes
    std::vector<int> result_at; ///< places of the result axes among its axes
    std::vector<int> over_at;
    std::vector<LoadCode> loads;
    std::vector<ExprCode> indices; ///< by body value; only for Index
    std::vector<char> varies;      ///< by body value: it depends on an axis of `over`
    std::size_t symbols_at = 0, indirect_at = 0;
    double work = 1; ///< evaluations of bodies that one of this body takes, when nothing is known
    std::unordered_map<std::int64_t, std::vector<Estimate>> known; ///< results by point number
    // The evaluation under way.
    std::vector<std::int64_t> slots;
    std::vector<Estimate> values;
    Dims coords;
  };
  struct OutputCode {
    LoadCode map; ///< from the result axes, with the layout
    std::int64_t elements = 0;
    std::size_t indirect_at = 0, slots = 0;
  };

  LoadCode translate(const IndexMap& map, const Shape& shape, const IndexMap* layout,
                     std::size_t axes);
  std::int64_t elements_of(const Shape& shape, const IndexMap& layout) const;
  void describe_body(std::size_t stage);
  /// The body's values at a point, good until the next call for the stage. `same`: the last call
  /// was for a point that differs only along the axes of `over`.
  const std::vector<Estimate>& body_at(std::size_t stage, const Dims& point, bool same = false);
  Estimate load_at(std::size_t stage, const kernel::Load& load, const LoadCode& code);
  const std::vector<Estimate>& result_at(std::size_t stage, const Dims& point);
  std::vector<Estimate> reduced(std::size_t stage, const Dims& point);
  /// The terms of a reduction at `point`, yield by yield, of the points first ... last - 1 of its
  /// `over` axes.
  void terms(std::size_t stage, const Dims& point, std::int64_t first, std::int64_t last,
             const std::function<void(const std::vector<Estimate>& values)>& take);
  void scan_line(std::size_t stage, const Dims& point);
  void sort_line(std::size_t stage, const Dims& point);
  struct Target {
    std::int64_t offset = -1; ///< -1: dropped
    bool in_doubt = false;    ///< it depends on rounding
  };
  Target target_of(int output, const Dims& point);

  const kernel::Region& region_;
  Bindings sizes_;
  std::vector<const HostArray*> operands_;
  std::vector<StageCode> stages_;
  std::vector<OutputCode> outputs_;
  int threads_;
  std::unique_ptr<ThreadPool> pool_;                      ///< when there was a long reduction
  std::vector<std::unique_ptr<RegionEvaluator>> helpers_; ///< by worker of the pool
  std::vector<Estimate> terms_;                           ///< that they made
};

} // namespace egret::backend::reference
