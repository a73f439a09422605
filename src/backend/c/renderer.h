// The C renderer's state, shared by its parts: statements (render.cpp), instructions and memory
// (render_inst.cpp). A value that is the same in all lanes is a scalar, every other one an array
// that a loop over its lanes fills: what compilers make vectors of.
#pragma once

#include "backend/c/language.h"
#include "backend/c/live.h"
#include "backend/c/render.h"
#include "backend/clike/renderer.h"

#include <string>
#include <vector>

namespace egret::backend::c {

class CRenderer final : private clike::Renderer {
public:
  CRenderer(const kernel::KernelProgram& program, Linkage linkage);
  std::string run();

private:
  /// How a value is held.
  struct Held {
    std::string text; ///< empty: not made yet
    bool array = false;
  };

  // Statements (render.cpp).
  void check_requirements() const;
  std::string prologue(const std::string& body);
  std::string worker_offset(std::size_t buffer) const;
  void assign(const kernel::Assign& stmt) override;
  void loop(const kernel::For& stmt) override;
  void core_loop(const kernel::For& stmt);
  void barrier() override;
  void intrinsic(const kernel::Intrinsic& use) override;
  void acquire(const kernel::Acquire& stmt) override;
  std::string table(const char* type, const std::vector<std::string>& values) override;
  std::string argument_pointer(const kernel::Buffer& buffer,
                               const std::string& number) const override;

  // Instructions and memory (render_inst.cpp).
  void let(kernel::ValueId target, const kernel::Inst& inst) override;
  void apply(kernel::ValueId target, const kernel::inst::Apply& inst, kernel::Type type);
  void fma(kernel::ValueId target, const kernel::inst::Fma& inst, kernel::Type type);
  void load(kernel::ValueId target, const kernel::inst::Load& inst, kernel::Type type);
  void shuffle(kernel::ValueId target, const kernel::inst::Shuffle& inst, kernel::Type type);
  void reduce_lanes(kernel::ValueId target, const kernel::inst::ReduceLanes& inst);
  void store(const kernel::Store& stmt) override;
  std::string argument(DType type, const std::string& number) const;

  /// Declares a value. `text(lane)` is one lane's: of all lanes where `varies`, else of lane 0.
  template <class F>
  void define(kernel::ValueId target, bool varies, const F& text);
  bool varies(const Expr& e) const;
  bool varies(const std::vector<Guard>& mask) const;
  template <class List>
  bool any_array(const List& values) const {
    for (kernel::ValueId id : values)
      if (held(id).array)
        return true;
    return false;
  }
  const Held& held(kernel::ValueId id) const;
  std::string lane_text(kernel::ValueId id, int lane) const override;
  int lanes_of(kernel::ValueId id) const {
    return program_.values[static_cast<std::size_t>(id)].lanes;
  }

  Linkage linkage_;
  Live live_;
  std::vector<Held> values_;
  bool in_core_loop_ = false;
};

} // namespace egret::backend::c
