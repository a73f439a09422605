// A plan: everything needed to run a compiled graph again and again, without pointers: what is
// launched, in which order, on which memory.
#pragma once

#include "egret/ir.h"
#include "kernel/program.h"
#include "kernel/region.h"

#include <memory>

namespace egret::kernel {

enum class SlotKind : std::uint8_t {
  Input,  ///< given by the caller at each run
  Output, ///< memory made anew for each run and handed to the caller
  State,  ///< an input that the run replaces in place (a donated parameter)
  Arena,  ///< part of the plan's one arena, at `offset`
};

struct Slot {
  SlotKind kind = SlotKind::Arena;
  DType dtype = DType::F32;
  Shape shape;
  Expr bytes;
  Expr offset;              ///< Arena
  std::int64_t number = -1; ///< Input: of the graph's input; Output and State: of the graph's
                            ///< output
  /// State: the graph's input that it is. Output: the one whose memory the run may use for it, if
  /// the caller gives that away: no step reads the input once the output is written; -1: none.
  std::int64_t input = -1;
  int first_step = 0, last_step = 0; ///< life
};

enum class StepKind : std::uint8_t { Launch, Copy, Wait, Host };

struct Step {
  StepKind kind = StepKind::Launch;
  int kernel = -1;        ///< Launch: place in Plan::kernels
  std::vector<int> slots; ///< Launch: by pointer argument, workspaces last; Copy: from, to
  std::vector<std::int64_t> offsets; ///< Launch: by operand in memory, bytes from the slot's begin
                                     ///< to the argument's; empty: every argument is a whole slot
  std::vector<int> dims;             ///< Launch: places in Plan::dims of the kernel's dims
  std::vector<int> scalars;          ///< Launch: graph inputs (by value) of the kernel's scalars
  std::vector<ir::NodeId> nodes;     ///< Launch: graph nodes that this launch stores, for reports
};

/// A fact about a symbolic dim that the plan relies on.
struct PlanGuard {
  Guard condition;
  std::string why;
};

/// Bytes from where the memory of Step::slots[argument] begins to what the kernel is given.
inline std::int64_t offset_of(const Step& step, std::size_t argument) {
  return argument < step.offsets.size() ? step.offsets[argument] : 0;
}

struct KernelEntry {
  Region region;
  Schedule schedule;
  KernelProgram program;
  std::uint64_t program_hash = 0;
};

struct Plan {
  std::uint64_t key =
      0; ///< canonical hash of the graph it was made from, with the target's fingerprint
  std::vector<PlanGuard> guards;
  std::vector<Expr> dims; ///< symbols, each bound by the shape of an input
  std::vector<Slot> slots;
  std::vector<KernelEntry> kernels; ///< distinct ones
  std::vector<Step> steps;
  Expr arena_bytes;
  Expr
      liveness_bound_bytes; ///< the largest sum of bytes alive at one step: no arena can be smaller
  std::vector<int> input_slots;  ///< by the graph's input; -1 for unused and by-value inputs
  std::vector<int> output_slots; ///< by the graph's output
};

/// Whether a kernel combines what is in the memory of output `output` before the launch: the data
/// of a scatter. One that adds or takes maxima, and reads the data's operand and not the output,
/// writes the output whole.
bool updates_in_place(const Region& region, const KernelProgram& program, std::size_t output);

std::string print(const Plan& plan);
void verify(const Plan& plan); ///< lives do not overlap in memory, every slot is written before it
                               ///< is read; throws InternalError

} // namespace egret::kernel
