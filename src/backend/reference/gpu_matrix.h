// What the warps of an interpreted launch do besides loads and arithmetic: asynchronous copies,
// barriers in memory and products of matrices. Late is late: copies and products happen when they
// are waited for, so that what uses them too early, or frees their operands too early, sees wrong
// values.
#pragma once

#include "backend/reference/gpu_turns.h"
#include "backend/reference/program_memory.h"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <vector>

namespace egret::backend::reference {

/// The barriers in memory (mbarriers) of all blocks, by block, buffer and place.
class Signals {
public:
  explicit Signals(const kernel::KernelProgram& program) : program_(program) {}
  void init(int block, int buffer, std::int64_t place, int arrivals);
  /// One arrival, after announcing `bytes`.
  void arrive(int block, int buffer, std::int64_t place, std::int64_t bytes);
  /// One arrival behind what `land` does: when somebody asks for the phase, as late as can be.
  void arrive_later(int block, int buffer, std::int64_t place, std::function<void()> land);
  /// Whether arrivals of this barrier stood behind copies.
  bool has_copies(int block, int buffer, std::int64_t place) const;
  /// Announced bytes that have come.
  void bring(int block, int buffer, std::int64_t place, std::int64_t bytes);
  /// Whether the phase of this parity has ended.
  bool ended(int block, int buffer, std::int64_t place, int parity);
  /// At the end of the launch: InternalError where a phase is half done, or copies came after the
  /// last one that waited.
  void finish() const;

private:
  struct Signal {
    int arrivals = 0, pending = 0;
    std::int64_t bytes =
        0; ///< announced and not here; less than 0: here before they were announced
    std::int64_t phase = 0;
    std::vector<std::function<void()>> late = {};
    bool copies = false;
  };
  Signal& at(int block, int buffer, std::int64_t place);
  static void settle(Signal& signal);

  const kernel::KernelProgram& program_;
  std::map<std::array<std::int64_t, 3>, Signal> signals_;
};

/// One matrix operand of a product in the order of tensor maps.
struct SwizzledMatrix {
  int buffer = -1;
  std::int64_t first = 0;
  bool transposed = false;
  std::int64_t group = 0;
  std::int64_t at(int panel, int k) const {
    return first + (transposed ? panel / 64 * group + k * 64 + panel % 64 : panel * 64 + k);
  }
};

class WarpMatrices {
public:
  static constexpr int kThreads = 32;
  using Actors = std::array<Actor, kThreads>;

  WarpMatrices(const kernel::KernelProgram& program, ProgramMemory& memory)
      : program_(program), memory_(memory) {}

  /// Copies `elements` between buffers, or zeros where `held` is false.
  void copy(int thread, int to_buffer, int from_buffer, int elements, std::int64_t to,
            std::int64_t from, bool held, const Actor& actor);
  void commit_copies(int thread);
  /// Takes the thread's copies that belong to no group yet; the result puts them in their places.
  std::function<void()> open_copies(int thread, const Actor& actor);
  void wait_copies(int thread, int groups, const Actor& actor);

  /// The box at `at` of a tensor map to `buffer` from `to` on; gives its bytes. `offset`, `extents`
  /// and `strides` as the map has them.
  std::int64_t copy_box(const kernel::TensorMap& map, std::int64_t offset,
                        std::span<const std::int64_t> extents,
                        std::span<const std::int64_t> strides, std::span<const std::int64_t> at,
                        int buffer, std::int64_t to, const Actor& actor);

  /// LoadMatrix: `rows` by thread; gives the words by thread.
  std::vector<std::array<Number, 4>> load(const kernel::Intrinsic& use,
                                          const std::array<std::int64_t, kThreads>& rows,
                                          const Actors& actors);
  /// MatrixMultiply, by thread.
  static std::vector<std::array<Number, 4>> multiply(DType element,
                                                     const std::vector<std::array<Number, 4>>& a,
                                                     const std::vector<std::array<Number, 4>>& b,
                                                     const std::vector<std::array<Number, 4>>& c);

  /// MatrixMultiplyAsync. `variables` gives the first of the four lanes of a variable in a thread.
  struct Product {
    SwizzledMatrix left, right;
    std::vector<std::array<Number, 4>> words; ///< of the left side, by thread, when in registers
    DType element = DType::BF16;
    bool add = true;
    int first_row = 0; ///< of the warp
    std::vector<kernel::VarId> variables;
  };
  void multiply_async(Product product) { open_products_.push_back(std::move(product)); }
  void commit_products();
  using Variable = std::function<Number*(kernel::VarId variable, int thread)>;
  void wait_products(int groups, const Actor& actor, const Variable& variable);

private:
  using Left = std::array<std::array<double, 16>, 16>;
  static Left left_of(DType element, const std::vector<std::array<Number, 4>>& words);

  struct Copy {
    int buffer;
    std::int64_t to;
    std::vector<Number> values;
  };
  void run(const Product& product, const Actor& actor, const Variable& variable);

  const kernel::KernelProgram& program_;
  ProgramMemory& memory_;
  std::array<std::vector<Copy>, kThreads> open_copies_;
  std::array<std::deque<std::vector<Copy>>, kThreads> copies_;
  std::vector<Product> open_products_;
  std::deque<std::vector<Product>> products_;
};

} // namespace egret::backend::reference
