#include "backend/c/library_parts.h"

#include "backend/clike/renderer.h"
#include "support/fail.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>

namespace egret::backend::c {

using kernel::Plan;
using kernel::Slot;
using kernel::SlotKind;
using kernel::Step;

namespace {

/// An unsigned integer with the bits of a value.
const char* bits_type(DType type) {
  switch (size_of(type)) {
  case 1:
    return "uint8_t";
  case 2:
    return "uint16_t";
  case 4:
    return "uint32_t";
  default:
    return "uint64_t";
  }
}

const char* parameter_type(DType type) {
  switch (type) {
  case DType::F32:
    return "float";
  case DType::F64:
    return "double";
  case DType::I8:
    return "int8_t";
  case DType::I16:
    return "int16_t";
  case DType::I32:
    return "int32_t";
  case DType::I64:
    return "int64_t";
  default:
    return bits_type(type); // no C type has their values
  }
}

/// What callers must know of a type that has no name in C.
std::string_view note_of(DType type) {
  switch (type) {
  case DType::Bool:
    return ", 0 or 1";
  case DType::F16:
  case DType::BF16:
  case DType::F8E4M3:
  case DType::F8E5M2:
    return ", as bits";
  default:
    return "";
  }
}

/// With the library's name before the endings.
std::vector<std::string> reserved_names(const std::string& library,
                                        std::span<const std::string_view> endings,
                                        std::span<const std::string_view> others) {
  std::vector<std::string> names{library, "memory", "bytes"};
  names.insert(names.end(), others.begin(), others.end());
  for (const std::string_view end : endings)
    names.push_back(library + std::string(end));
  return names;
}

/// The interface, whose name may be a function's.
const LibraryInterface& checked(const LibraryInterface& interface, const ir::Graph& graph) {
  if (!is_function_name(interface.name))
    fail(ErrorKind::Value,
         "library: {} is no name of a C function: letters, digits and underscores, from a letter "
         "on, and no keyword",
         interface.name);
  ensure(interface.inputs.size() == graph.inputs().size(), "a library of {} inputs is told of {}",
         graph.inputs().size(), interface.inputs.size());
  return interface;
}

} // namespace

std::string words_of(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(bytes.size() * 5 / 2 + 64);
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
    fmt::format_to(std::back_inserter(text), "{}0x{:x}u,", at % 64 == 0 ? "\n  " : " ", word);
  }
  return text;
}

std::string LibraryParts::Parameter::declaration() const {
  switch (kind) {
  case Kind::Size:
  case Kind::Number:
    return fmt::format("{} {}", type, name);
  case Kind::Read:
    return fmt::format("const {}* {}", type, name);
  case Kind::Replaced:
  case Kind::Written:
    break;
  }
  return fmt::format("{}* {}", type, name);
}

LibraryParts::LibraryParts(const Plan& plan, const ir::Graph& graph,
                           const LibraryInterface& interface,
                           std::span<const std::string_view> endings,
                           std::span<const std::string_view> reserved)
    : plan_(plan), graph_(graph), interface_(checked(interface, graph)),
      names_(plan.dims.size(), reserved_names(interface.name, endings, reserved)) {
  dims_only_.name = interface.name;
  dims_only_.dims = plan.dims;
}

std::string LibraryParts::type_text(DType type, const Shape& shape) const {
  return name_of(type) + to_string(shape) + std::string(note_of(type));
}

Expr LibraryParts::bytes_of(DType type, const Shape& shape) const {
  return element_count(shape) * Expr(static_cast<std::int64_t>(size_of(type)));
}

// Bytes that are part of the library.
std::string LibraryParts::value(std::span<const std::byte> bytes) {
  if (bytes.empty())
    return "0";
  const std::string name = fmt::format("eg_value{}", value_count_++);
  values_ += fmt::format("static const _Alignas(64) uint64_t {}[{}] = {{{}\n}};\n", name,
                         (bytes.size() + 7) / 8, words_of(bytes));
  return address_of_value(name, bytes.size());
}

void LibraryParts::name_parameters() {
  for (const Expr& dim : plan_.dims) {
    dims_.push_back(names_.take(dim.str(), "size"));
    parameters_.push_back(
        {Parameter::Kind::Size, "int64_t", dims_.back(),
         fmt::format("a size from {} to {}{}", dim.lower(), dim.upper(),
                     dim.divisor() > 1 ? fmt::format(", a multiple of {}", dim.divisor()) : ""),
         0});
  }
  name_inputs();
  name_results();
}

void LibraryParts::name_inputs() {
  std::vector<bool> replaced(interface_.inputs.size());
  for (const Slot& slot : plan_.slots)
    if (slot.kind == SlotKind::State)
      replaced.at(static_cast<std::size_t>(slot.input)) = true;
  std::vector<std::size_t> order(interface_.inputs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {},
                           [&](std::size_t slot) { return interface_.inputs[slot].place; });
  inputs_.resize(order.size());
  for (const std::size_t slot : order) {
    const LibraryInterface::Input& given = interface_.inputs[slot];
    std::string& name = inputs_[slot];
    const ir::Node& node = input(slot);
    if (given.value) {
      std::uint64_t bits = 0;
      if (node.attrs.by_value)
        std::memcpy(&bits, given.value->data(), std::min(sizeof bits, given.value->size()));
      ensure(!replaced[slot], "a state is part of a library");
      name = node.attrs.by_value ? fmt::format("0x{:x}u", bits) : value(*given.value);
      continue;
    }
    name = names_.take(given.name, fmt::format("input{}", slot));
    const char* type = parameter_type(node.dtype);
    const std::string text = type_text(node.dtype, node.shape);
    const Expr bytes = bytes_of(node.dtype, node.shape);
    if (node.attrs.by_value)
      parameters_.push_back({Parameter::Kind::Number, type, name, text + ", by value", 0});
    else if (replaced[slot])
      parameters_.push_back(
          {Parameter::Kind::Replaced, type, name, text + ", read and replaced", bytes});
    else
      parameters_.push_back({Parameter::Kind::Read, type, name, text + ", read", bytes});
  }
}

void LibraryParts::name_results() {
  outputs_.resize(plan_.output_slots.size());
  for (std::size_t output = 0; output < outputs_.size(); ++output) {
    const Slot& slot = plan_.slots[static_cast<std::size_t>(plan_.output_slots[output])];
    if (slot.kind == SlotKind::State)
      outputs_[output] = inputs_.at(static_cast<std::size_t>(slot.input));
  }
  for (std::size_t r = 0; r < interface_.results.size(); ++r) {
    const LibraryInterface::Result& result = interface_.results[r];
    results_.push_back(names_.take(result.name, fmt::format("result{}", r)));
    parameters_.push_back({Parameter::Kind::Written, parameter_type(result.dtype), results_.back(),
                           type_text(result.dtype, result.shape) + ", written",
                           bytes_of(result.dtype, result.shape)});
    fixed_.push_back(result.kind == LibraryInterface::Result::Kind::Value ? value(result.value)
                                                                          : "");
    if (result.kind == LibraryInterface::Result::Kind::Output)
      if (std::string& address = outputs_.at(result.number); address.empty())
        address = results_.back();
  }
  for (const std::string& address : outputs_)
    ensure(!address.empty(), "library {}: nobody takes an output", interface_.name);
}

std::string LibraryParts::address(const Slot& slot) const {
  switch (slot.kind) {
  case SlotKind::Input:
    return inputs_.at(static_cast<std::size_t>(slot.number));
  case SlotKind::State:
    return inputs_.at(static_cast<std::size_t>(slot.input));
  case SlotKind::Output:
    return outputs_.at(static_cast<std::size_t>(slot.number));
  case SlotKind::Arena:
    break;
  }
  return fmt::format("eg_arena + {}", number(slot.offset));
}

std::string LibraryParts::dims_text() const {
  std::string text;
  for (std::size_t d = 0; d < plan_.dims.size(); ++d) {
    const char* type = clike::IndexText::fits(plan_.dims[d]) ? "int" : "long long";
    text += fmt::format("  const {0} d{1} = ({0}){2};\n", type, d, dims_[d]);
  }
  for (std::size_t d = 0; d < plan_.dims.size(); ++d)
    text += fmt::format("  (void)d{};\n", d);
  return text;
}

std::string LibraryParts::uses_text() const {
  std::string text;
  for (const Parameter& parameter : parameters_)
    text += fmt::format("  (void){};\n", parameter.name);
  return text;
}

std::string LibraryParts::guards_text() const {
  std::string text;
  for (std::size_t d = 0; d < plan_.dims.size(); ++d) {
    const Expr& dim = plan_.dims[d];
    text += fmt::format("  if ({0} < {1}LL || {0} > {2}LL{3}) return {4}_BAD_SIZE;\n", dims_[d],
                        dim.lower(), dim.upper(),
                        dim.divisor() > 1 ? fmt::format(" || {} % {} != 0", dims_[d], dim.divisor())
                                          : "",
                        interface_.name);
  }
  std::string more;
  for (const kernel::PlanGuard& guard : plan_.guards)
    more += fmt::format("  if ({0} < {1} || {0} >= {2}) return {3}_BAD_SIZE;\n",
                        number(guard.condition.value), number(guard.condition.lo),
                        number(guard.condition.hi), interface_.name);
  return text + dims_text() + more;
}

Expr LibraryParts::by_plan_dims(const Expr& e, const kernel::KernelProgram& program,
                                const Step& step) const {
  return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
    const auto at = std::ranges::find(program.dims, v);
    if (at == program.dims.end())
      return std::nullopt;
    const int dim = step.dims[static_cast<std::size_t>(at - program.dims.begin())];
    return plan_.dims[static_cast<std::size_t>(dim)];
  });
}

LibraryParts::Arguments LibraryParts::arguments_of(const Step& step,
                                                   std::string_view scalars) const {
  Arguments arguments;
  for (std::size_t i = 0; i < step.slots.size(); ++i) {
    const std::string from = address(plan_.slots[static_cast<std::size_t>(step.slots[i])]);
    const std::int64_t offset = kernel::offset_of(step, i);
    arguments.pointers.push_back(
        fmt::format("(char*)({}){}", from, offset ? fmt::format(" + {}", offset) : ""));
  }
  for (const int dim : step.dims)
    arguments.dims.push_back(fmt::format("d{}", dim));
  for (std::size_t i = 0; i < step.scalars.size(); ++i) {
    const auto slot = static_cast<std::size_t>(step.scalars[i]);
    const bool known = interface_.inputs[slot].value.has_value();
    arguments.scalars.push_back(known ? inputs_[slot] : "0");
    if (!known)
      arguments.fill +=
          fmt::format("    memcpy(&{0}[{1}], &{2}, sizeof {2});\n", scalars, i, inputs_[slot]);
  }
  return arguments;
}

std::vector<LibraryParts::Copy> LibraryParts::copies() const {
  using Kind = LibraryInterface::Result::Kind;
  std::vector<Copy> all;
  for (std::size_t r = 0; r < results_.size(); ++r) {
    const LibraryInterface::Result& result = interface_.results[r];
    const std::string& from = result.kind == Kind::Output  ? outputs_[result.number]
                              : result.kind == Kind::Input ? inputs_.at(result.number)
                                                           : fixed_[r];
    if (from == results_[r] || element_count(result.shape) == Expr(0))
      continue;
    const bool is_number = result.kind == Kind::Input && input(result.number).attrs.by_value;
    all.push_back({results_[r], from, bytes_of(result.dtype, result.shape),
                   is_number ? number_type(result) : nullptr});
  }
  return all;
}

// A number's parameter has its type; one that is part of the library is given as bits.
const char* LibraryParts::number_type(const LibraryInterface::Result& result) const {
  return interface_.inputs[result.number].value ? bits_type(result.dtype)
                                                : parameter_type(result.dtype);
}

std::string LibraryParts::size_parameters() const {
  std::string text;
  for (const std::string& dim : dims_)
    text += fmt::format("{}int64_t {}", text.empty() ? "" : ", ", dim);
  return text.empty() ? "void" : text;
}

std::string LibraryParts::array_parameters() const {
  std::string text;
  for (const Parameter& parameter : parameters_)
    text += parameter.declaration() + ", ";
  return text;
}

std::string LibraryParts::header_of(const std::string& declarations) const {
  return fmt::format(R"(#ifndef EGRET_LIBRARY_{0}_H
#define EGRET_LIBRARY_{0}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{1}
#ifdef __cplusplus
}}
#endif

#endif
)",
                     interface_.name, declarations);
}

std::string LibraryParts::notes() const {
  std::string text;
  for (const Parameter& parameter : parameters_)
    text +=
        fmt::format("     {}: {}\n", parameter.declaration(), clike::comment_text(parameter.note));
  return text;
}

std::string LibraryParts::prelude_of(const std::string& code) const {
  return clike::prelude_for(code, prelude_pieces());
}

} // namespace egret::backend::c
