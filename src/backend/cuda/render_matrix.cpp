// Asynchronous copies, mbarriers and matrix instructions as PTX.
#include "backend/cuda/renderer.h"

#include <algorithm>

#include <set>

namespace egret::backend::cuda {

using kernel::Intrinsic;
using kernel::IntrinsicId;
using kernel::ValueId;

namespace {

struct MatrixPiece {
  std::string_view name, text;
};

constexpr MatrixPiece kMatrixPieces[] = {
    {"eg_address(", R"(__device__ __forceinline__ unsigned eg_address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
)"},
    {"eg_copy16(", R"(__device__ __forceinline__ void eg_copy16(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void eg_copy16(unsigned to, const void* from, bool held) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(to), "l"(from), "r"(held ? 16 : 0) : "memory");
}
)"},
    {"eg_copy8(",
     R"(__device__ __forceinline__ void eg_copy8(unsigned to, const void* from, bool held = true) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
               :: "r"(to), "l"(from), "r"(held ? 8 : 0) : "memory");
}
)"},
    {"eg_copy4(",
     R"(__device__ __forceinline__ void eg_copy4(unsigned to, const void* from, bool held = true) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :: "r"(to), "l"(from), "r"(held ? 4 : 0) : "memory");
}
)"},
    // Rows of 128 bytes: pieces of 16 stand where the row's number in its group of 8 says.
    {"eg_swizzled(", R"(__device__ __forceinline__ unsigned eg_swizzled(unsigned address) {
  return address ^ ((address >> 3) & 0x70u);
}
)"},
    {"eg_put16(",
     R"(__device__ __forceinline__ void eg_put16(unsigned to, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
               :: "r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
)"},
    {"eg_arrive_copies(", R"(__device__ __forceinline__ void eg_arrive_copies(unsigned s) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(s) : "memory");
}
)"},
    {"eg_bulk_copy(",
     R"(__device__ __forceinline__ void eg_bulk_copy(unsigned to, const void* from, int bytes, unsigned s) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(to), "l"(from), "r"(bytes), "r"(s) : "memory");
}
)"},
    {"eg_signal(", R"(__device__ __forceinline__ void eg_signal(unsigned s, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(s), "r"(arrivals) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
)"},
    {"eg_arrive(", R"(__device__ __forceinline__ void eg_arrive(unsigned s) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(s) : "memory");
}
__device__ __forceinline__ void eg_arrive(unsigned s, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(s), "r"(bytes) : "memory");
}
)"},
    {"eg_await(", R"(__device__ __forceinline__ void eg_await(unsigned s, int parity) {
  asm volatile("{\n"
               ".reg .pred p;\n"
               "AGAIN:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@!p bra AGAIN;\n"
               "}" :: "r"(s), "r"(parity) : "memory");
}
)"},
    // Rows of 128 bytes in the swizzled order: 8 of them are 1024 bytes apart from the next 8.
    {"eg_matrix(",
     R"(__device__ __forceinline__ unsigned long long eg_matrix(unsigned address, unsigned group) {
  return (unsigned long long)((address & 0x3ffffu) >> 4) | (unsigned long long)(group >> 4) << 16 |
         (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}
)"},
};

/// A warp group's product of 64 rows by 8 * `pieces` columns, all sums as operands.
std::string product_text(const std::string& name, const Intrinsic& use) {
  const int pieces = int(use.variables.size());
  const bool in_registers = !use.values.empty();
  const int sums = 4 * pieces;
  std::string parameters, registers, operands;
  for (int i = 0; i < sums; ++i) {
    parameters += fmt::format("float& d{}, ", i);
    registers += fmt::format("{}%{}", i ? ", " : "", i);
    operands += fmt::format("{}\"+f\"(d{})", i ? ", " : "", i);
  }
  const std::string_view type = name_of(use.dtype("element"));
  std::string left = fmt::format("%{}", sums),
              orders = fmt::format("{}, ", use.number("transposed_a"));
  std::string left_parameter = "unsigned long long a", left_operand = "\"l\"(a)";
  int next = sums + 1;
  if (in_registers) {
    left = fmt::format("{{%{}, %{}, %{}, %{}}}", sums, sums + 1, sums + 2, sums + 3);
    left_parameter = "unsigned a0, unsigned a1, unsigned a2, unsigned a3";
    left_operand = "\"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3)";
    orders = "";
    next = sums + 4;
  }
  return fmt::format("__device__ __forceinline__ void {}({}{}, unsigned long long b, int add) {{\n"
                     "  asm volatile(\"{{ .reg .pred p; setp.ne.b32 p, %{}, 0; \"\n"
                     "    \"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}}}, {}, %{}, p, "
                     "1, 1, {}{}; }}\"\n"
                     "    : {} : {}, \"l\"(b), \"r\"(add));\n}}\n",
                     name, parameters, left_parameter, next + 1, 8 * pieces, type, type, registers,
                     left, next, orders, use.number("transposed_b"), operands, left_operand);
}

std::string mma_text(bool bf16) {
  const char* type = bf16 ? "bf16" : "f16";
  return fmt::format(
      "__device__ __forceinline__ void eg_mma_{0}(float& d0, float& d1, float& d2, float& d3,\n"
      "    unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1,\n"
      "    float c0, float c1, float c2, float c3) {{\n"
      "  asm(\"mma.sync.aligned.m16n8k16.row.col.f32.{0}.{0}.f32 {{%0, %1, %2, %3}}, \"\n"
      "      \"{{%4, %5, %6, %7}}, {{%8, %9}}, {{%10, %11, %12, %13}};\"\n"
      "      : \"=f\"(d0), \"=f\"(d1), \"=f\"(d2), \"=f\"(d3)\n"
      "      : \"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3), \"r\"(b0), \"r\"(b1),\n"
      "        \"f\"(c0), \"f\"(c1), \"f\"(c2), \"f\"(c3));\n}}\n",
      type);
}

std::string product_name(const Intrinsic& use) {
  return fmt::format("eg_product_{}_{}_{}{}", name_of(use.dtype("element")),
                     8 * use.variables.size(),
                     use.values.empty() ? std::to_string(use.number("transposed_a")) : "registers",
                     use.number("transposed_b"));
}

} // namespace

std::string CudaRenderer::matrix_prelude(const std::string& body) const {
  std::string text;
  for (const MatrixPiece& p : kMatrixPieces)
    if (body.find(p.name) != std::string::npos)
      text += p.text;
  for (bool bf16 : {true, false})
    if (body.find(bf16 ? "eg_mma_bf16(" : "eg_mma_f16(") != std::string::npos)
      text += mma_text(bf16);
  std::set<std::string> made;
  each_statement(program_.body, [&](const kernel::Stmt& s) {
    const auto* use = get_if<Intrinsic>(s);
    if (use && use->id == IntrinsicId::MatrixMultiplyAsync &&
        made.insert(product_name(*use)).second)
      text += product_text(product_name(*use), *use);
  });
  if (!program_.tensor_maps.empty())
    text += "struct __align__(64) CUtensorMap { unsigned long long opaque[16]; };\n";
  return text;
}

std::string CudaRenderer::tensor_map_parameters() const {
  std::string text;
  for (std::size_t i = 0; i < program_.tensor_maps.size(); ++i)
    text += fmt::format(", const __grid_constant__ CUtensorMap map{}", i);
  return text;
}

std::string CudaRenderer::address(const kernel::Address& at) const {
  return fmt::format("eg_address(b{} + {})", at.buffer, index_.text(at.index));
}

bool has_products(const kernel::Block& block) {
  return any_statement(block, [](const kernel::Stmt& s) {
    const auto* queued = get_if<Intrinsic>(s);
    const auto* value = made_by<Intrinsic>(s);
    return (queued && queued->id == IntrinsicId::MatrixMultiplyAsync) ||
           (value && value->id == IntrinsicId::MatrixMultiply);
  });
}

/// The lanes of a value as variables, declared.
std::vector<std::string> CudaRenderer::declared(ValueId target) {
  Lanes& made = values_[static_cast<std::size_t>(target)];
  const kernel::Type& type = program_.values[static_cast<std::size_t>(target)];
  for (int l = 0; l < type.lanes; ++l)
    made.push_back(type.lanes == 1 ? fmt::format("v{}", target) : fmt::format("v{}_{}", target, l));
  line("{} {};", register_type(type.dtype), fmt::join(made, ", "));
  return made;
}

void CudaRenderer::matrix_multiply(const Intrinsic& use, ValueId target) {
  std::vector<std::string> args = declared(target);
  const int words[] = {4, 2, 4};
  for (std::size_t a = 0; a < 3; ++a)
    for (int l = 0; l < words[a]; ++l)
      args.push_back(lane_of(use.values[a], l));
  line("eg_mma_{}({});", name_of(use.dtype("element")), fmt::join(args, ", "));
}

void CudaRenderer::load_matrix(const Intrinsic& use, ValueId target) {
  const std::vector<std::string> made = declared(target);
  const std::int64_t matrices = use.number("matrices");
  std::string places, outputs;
  for (int l = 0; l < matrices; ++l) {
    places += fmt::format("{}%{}", l ? ", " : "", l);
    outputs += fmt::format("{}\"=r\"({})", l ? ", " : "", made[static_cast<std::size_t>(l)]);
  }
  line("asm volatile(\"ldmatrix.sync.aligned.m8n8.x{}{}.shared.b16 {{{}}}, [%{}];\" : {} : "
       "\"r\"({}) : \"memory\");",
       matrices, use.number("transposed") != 0 ? ".trans" : "", places, matrices, outputs,
       address(use.memory[0]));
}

/// An address in the swizzled order. The pattern is that of 1024 bytes; multiples of that are added
/// behind it, so that it is computed once for places that are so far apart.
std::string CudaRenderer::swizzled(const kernel::Address& at, DType type) const {
  const ExprNode& node = at.index.node();
  const auto further = std::int64_t(size_of(type)) * (node.kind == ExprKind::Sum ? node.value : 0);
  const std::int64_t whole = further / 1024 * 1024 / std::int64_t(size_of(type));
  return fmt::format("eg_swizzled({}) + {}u", address({at.buffer, at.index - Expr(whole)}),
                     whole * std::int64_t(size_of(type)));
}

void CudaRenderer::store_swizzled(const Intrinsic& use) {
  const kernel::Address& to = use.memory[0];
  std::string words;
  for (int l = 0; l < 8; l += 2)
    words +=
        fmt::format(", eg_pair({}, {})", lane_of(use.values[0], l), lane_of(use.values[0], l + 1));
  const std::string held = index_.condition(use.mask);
  line("{}eg_put16({}{});", held.empty() ? held : fmt::format("if ({}) ", held),
       swizzled(to, program_.buffers[std::size_t(to.buffer)].dtype), words);
}

void CudaRenderer::copy_async(const Intrinsic& use) {
  const kernel::Address &to = use.memory[0], &from = use.memory[1];
  const DType type = program_.buffers[static_cast<std::size_t>(from.buffer)].dtype;
  const auto bytes = std::size_t(use.number("elements")) * size_of(type);
  const std::string held = index_.condition(use.mask);
  const std::string place = use.number("swizzled") != 0 ? swizzled(to, type) : address(to);
  line("eg_copy{}({}, b{} + {}{}{});", bytes, place, from.buffer, index_.text(from.index),
       held.empty() ? "" : ", ", held);
}

void CudaRenderer::bulk_tensor_copy(const Intrinsic& use) {
  std::string places, operands;
  for (std::size_t i = 0; i < use.indices.size(); ++i) {
    places += fmt::format("{}%{}", i ? ", " : "", i + 3);
    operands += fmt::format(", \"r\"((int){})", index_.text(use.indices[i]));
  }
  line(
      "asm volatile(\"cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {{{}}}], [%2];\" :: \"r\"({}), \"l\"(&map{}), \"r\"({}){} : \"memory\");",
      use.indices.size(), places, address(use.memory[0]), use.number("map"), address(use.memory[1]),
      operands);
}

void CudaRenderer::bulk_copy(const Intrinsic& use) {
  const kernel::Address& from = use.memory[1];
  const DType type = program_.buffers[static_cast<std::size_t>(from.buffer)].dtype;
  line("eg_bulk_copy({}, b{} + {}, {}, {});", address(use.memory[0]), from.buffer,
       index_.text(from.index), use.number("elements") * static_cast<std::int64_t>(size_of(type)),
       address(use.memory[2]));
}

void CudaRenderer::matrix_multiply_async(const Intrinsic& use) {
  std::string sums;
  for (kernel::VarId v : use.variables)
    for (int l = 0; l < 4; ++l)
      sums += fmt::format("r{}_{}, ", v, l);
  // Products one behind the other differ in constants: these are added to a descriptor that is made
  // once, in its units of 16 bytes.
  const auto matrix = [&](const kernel::Address& at, bool transposed, std::int64_t group) {
    const ExprNode& node = at.index.node();
    const bool sum = node.kind == ExprKind::Sum || node.kind == ExprKind::Constant;
    const std::int64_t further = sum && node.value % 8 == 0 ? node.value : 0;
    return fmt::format("eg_matrix({}, {}) + {}ull", address({at.buffer, at.index - Expr(further)}),
                       transposed ? 2 * group : 16, further / 8);
  };
  const std::string add = index_.condition(use.mask);
  std::string left;
  if (use.values.empty())
    left = matrix(use.memory[1], use.number("transposed_a") != 0, use.number("group_a"));
  else
    for (int l = 0; l < 4; ++l)
      left += (l ? ", " : "") + lane_of(use.values[0], l);
  line("{}({}{}, {}, {});", product_name(use), sums, left,
       matrix(use.memory[0], use.number("transposed_b") != 0, use.number("group_b")),
       add.empty() ? "1" : "(int)(" + add + ")");
}

/// An instruction that its variables do not move across.
void CudaRenderer::with_variables(const std::string& instruction, const Intrinsic& use) {
  std::string operands;
  for (kernel::VarId v : use.variables) {
    const kernel::Type& type = program_.variables[static_cast<std::size_t>(v)];
    for (int l = 0; l < type.lanes; ++l)
      operands += fmt::format("{}\"+{}\"(r{}_{})", operands.empty() ? "" : ", ",
                              type.dtype == DType::F32 ? "f" : "r", v, l);
  }
  line("asm volatile(\"{};\" : {}: : \"memory\");", instruction, operands);
}

} // namespace egret::backend::cuda
