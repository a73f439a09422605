// The CUDA renderer's state, shared by its parts: statements (render.cpp), instructions
// (render_inst.cpp), memory (render_memory.cpp). Every lane of a
// value is a C variable of its own, so that the compiler sees nothing but scalars.
#pragma once

#include "backend/clike/renderer.h"
#include "backend/cuda/language.h"
#include "backend/cuda/render.h"
#include "kernel/rounded_uses.h"

#include "support/fail.h"

#include <string>
#include <vector>

namespace egret::backend::cuda {

using clike::IndexText;
using clike::memory_type;
using clike::register_type;

class CudaRenderer final : private clike::Renderer {
public:
  /// `symbol`: the name of the kernel.
  CudaRenderer(const kernel::KernelProgram& program, const CudaTarget& target, std::string symbol);
  std::string run();

private:
  using Lanes = std::vector<std::string>;

  // Statements (render.cpp).
  std::string parameters() const;
  void arguments();
  void assign(const kernel::Assign& stmt) override;
  void loop(const kernel::For& stmt) override;
  void grid_loop(const kernel::For& stmt);
  void dynamic_loop(const kernel::For& stmt);
  void relayed_loop(const kernel::For& stmt);
  void take_item(const kernel::For& stmt, int n);
  void clear_queue(const char* condition, const std::string& queue);
  void barrier() override { line("__syncthreads();"); }
  void intrinsic(const kernel::Intrinsic& use) override { intrinsic(use, -1); }
  void acquire(const kernel::Acquire& stmt) override;
  std::string table(const char* type, const std::vector<std::string>& values) override;
  std::string argument_pointer(const kernel::Buffer& buffer,
                               const std::string& number) const override;
  bool is_read_only(const kernel::Buffer& buffer) const;
  void enter_branch(const kernel::Block& body) override;
  void atomic_combine(const kernel::Intrinsic& use);
  void atomic_fetch_add(const kernel::Intrinsic& use);
  void await_word(const kernel::Intrinsic& use);
  void count_in_order(const kernel::Intrinsic& use);
  std::string counter(const kernel::Address& at) const;

  // Instructions (render_inst.cpp).
  void let(kernel::ValueId target, const kernel::Inst& inst) override;
  void apply(kernel::ValueId target, const kernel::inst::Apply& inst, kernel::Type type);
  bool pairwise_cast(kernel::ValueId target, const kernel::inst::Apply& inst, kernel::Type type);
  /// What rounds two lanes of an f32 to 16 bits: `at` is the first.
  std::string rounded_pair(kernel::ValueId value, DType to, int at) const;
  /// Two lanes of the 16-bit value that an f32 was widened from, in one word; empty when it was
  /// not.
  std::string widened_pair(kernel::ValueId value, DType from, int at) const;
  void reduce_lanes(kernel::ValueId target, const kernel::inst::ReduceLanes& inst);
  void reduce_threads(kernel::ValueId target, const kernel::Intrinsic& use);
  void scan_threads(kernel::ValueId target, const kernel::Intrinsic& use);
  void shuffle_xor(kernel::ValueId target, const kernel::Intrinsic& use);

  // Memory (render_memory.cpp).
  struct Access { ///< how the lanes of a load or store lie
    Expr base;    ///< of lane 0
    int bytes;    ///< of one access, 0 when the lanes do not lie one after the other
  };
  Access access_of(const kernel::Address& at, int lanes) const;
  std::vector<Guard> without_lanes(const std::vector<Guard>& mask, int lanes) const;
  std::string all_lanes(const std::vector<Guard>& mask, int lanes) const;
  void load(kernel::ValueId target, const kernel::inst::Load& load, kernel::Type type);
  void load_words(kernel::ValueId target, const kernel::inst::Load& load, kernel::Type type,
                  const Access& access);
  void store(const kernel::Store& stmt) override;
  void store_words(const kernel::Store& stmt, const Lanes& values, kernel::Type type,
                   const Access& access);
  void prefetch(const kernel::Address& at);
  std::string element(int buffer, const Expr& e, int lane) const;
  /// `masked`: of a load that not all threads do.
  std::string read(int buffer, const std::string& place, kernel::CachePolicy policy,
                   bool masked) const;

  // Intrinsics (render_intrinsics.cpp), those of copies and matrices as PTX (render_matrix.cpp).
  /// `target`: the value that is made; -1 where there is none.
  void intrinsic(const kernel::Intrinsic& use, kernel::ValueId target);
  void check_requirement(const kernel::Intrinsic& use) const;
  std::string swizzled(const kernel::Address& at, DType type) const;
  void store_swizzled(const kernel::Intrinsic& use);
  void copy_async(const kernel::Intrinsic& use);
  void bulk_tensor_copy(const kernel::Intrinsic& use);
  void bulk_copy(const kernel::Intrinsic& use);
  void grid_dependency_wait(bool unless_settled);
  void launch_dependents();
  void load_matrix(const kernel::Intrinsic& use, kernel::ValueId target);
  void matrix_multiply(const kernel::Intrinsic& use, kernel::ValueId target);
  void matrix_multiply_async(const kernel::Intrinsic& use);
  void with_variables(const std::string& instruction, const kernel::Intrinsic& use);
  std::vector<std::string> declared(kernel::ValueId target);
  std::string address(const kernel::Address& at) const;
  std::string matrix_prelude(const std::string& body) const;
  std::string tensor_map_parameters() const;

  /// Declares one lane of a value as a constant.
  void define(kernel::ValueId target, int lane, const std::string& text);
  const Lanes& value(kernel::ValueId id) const;
  const std::string& lane_of(kernel::ValueId id, int lane) const;
  std::string lane_text(kernel::ValueId id, int lane) const override { return lane_of(id, lane); }
  /// How a value was made, if by a T; else null.
  template <class T>
  const T* made(kernel::ValueId id) const {
    const kernel::Inst* inst = made_by_[static_cast<std::size_t>(id)];
    return inst ? get_if<T>(*inst) : nullptr;
  }

  CudaTarget target_;
  std::vector<Lanes> values_;
  std::vector<const kernel::Inst*> made_by_; ///< by value
  std::vector<kernel::Asked> asked_;         ///< by value
  std::string symbol_;
  std::string tables_; ///< the kernel's constant arrays
  std::size_t table_bytes_ = 0;
  bool multiplies_; ///< has matrix instructions, so that arithmetic may be what it waits for
};

/// One lane of an op on f32 with a relative error of up to 2^-17; empty for an op that has no such
/// form.
std::string narrow_text(Op op, const std::vector<std::string>& args);
/// Whether a warp multiplies matrices fragment by fragment.
bool has_products(const kernel::Block& block);
/// The functions that generated text may use.
std::span<const clike::Piece> prelude_pieces();

/// Where the renderer puts things in a block's dynamic shared memory.
struct SharedLayout {
  std::vector<std::int64_t> offset; ///< by buffer; -1 for those elsewhere
  std::int64_t scratch = -1;        ///< of combinations over the block
  std::int64_t scratch_half = 0;    ///< bytes of one of its two halves
  std::int64_t ticket = -1;         ///< of loops that take their work from a queue
  std::int64_t bytes = 0;
};
SharedLayout shared_layout(const kernel::KernelProgram& program);

} // namespace egret::backend::cuda
