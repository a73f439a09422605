// The members of statements, instructions and programs, listed once for everything that goes over
// all of them: hashes, bytes, renaming, the expressions of a program. An archive is called with
// each member; numbers that name something else of the program go to its `id`.
#pragma once

#include "kernel/program.h"

#include <tuple>

namespace egret::kernel {

/// What a number names.
enum class IdKind : std::uint8_t { Value, Variable, Loop, Buffer, Scalar };

template <class A, class... T>
void all_members(A& archive, T&... fields) {
  (archive(fields), ...);
}
template <class A, class L>
void all_ids(A& archive, IdKind kind, L& list) {
  for (auto& id : list)
    archive.id(kind, id);
}

template <class A>
void members(A& a, Scalar& x) {
  all_members(a, x.dtype, x.bits);
}
template <class A>
void members(A& a, Guard& x) {
  all_members(a, x.value, x.lo, x.hi);
}
template <class A>
void members(A& a, Type& x) {
  all_members(a, x.dtype, x.lanes);
}
template <class A>
void members(A& a, Address& x) {
  a.id(IdKind::Buffer, x.buffer);
  a(x.index);
}

// --- Instructions

template <class A>
void members(A& a, inst::Constant& x) {
  a(x.value);
}
template <class A>
void members(A& a, inst::Argument& x) {
  a.id(IdKind::Scalar, x.number);
}
template <class A>
void members(A& a, inst::Index& x) {
  a(x.expr);
}
template <class A>
void members(A& a, inst::Apply& x) {
  all_members(a, x.op, x.approximate);
  a.ids(IdKind::Value, x.args);
}
template <class A>
void members(A& a, inst::Fma& x) {
  all_ids(a, IdKind::Value, x.args);
}
template <class A>
void members(A& a, inst::Load& x) {
  all_members(a, x.from, x.mask, x.policy);
}
template <class A>
void members(A& a, inst::Read& x) {
  a.id(IdKind::Variable, x.variable);
}
template <class A>
void members(A& a, inst::Splat& x) {
  a.id(IdKind::Value, x.value);
}
template <class A>
void members(A& a, inst::Extract& x) {
  a.id(IdKind::Value, x.value);
  a(x.lane);
}
template <class A>
void members(A& a, inst::ReduceLanes& x) {
  a.id(IdKind::Value, x.value);
  a(x.monoid);
}
template <class A>
void members(A& a, inst::Shuffle& x) {
  a.ids(IdKind::Value, x.args);
  a(x.lanes_from);
}
template <class A>
void members(A& a, inst::Test& x) {
  a(x.mask);
}
template <class A>
void members(A& a, Intrinsic& x) {
  all_members(a, x.id, x.memory);
  a.ids(IdKind::Value, x.values);
  a.ids(IdKind::Variable, x.variables);
  all_members(a, x.numbers, x.indices, x.mask);
}
template <class A>
void members(A& a, Inst& x) {
  all_members(a, x.type, x.op);
}

// --- Statements

template <class A>
void members(A& a, Let& x) {
  a.id(IdKind::Value, x.target);
  a(x.inst);
}
template <class A>
void members(A& a, Assign& x) {
  a.id(IdKind::Variable, x.variable);
  a.id(IdKind::Value, x.value);
}
template <class A>
void members(A& a, Store& x) {
  a.id(IdKind::Value, x.value);
  all_members(a, x.to, x.mask, x.policy);
}
template <class A>
void members(A& a, Relay& x) {
  all_members(a, x.at, x.leads);
}
template <class A>
void members(A& a, For& x) {
  a.id(IdKind::Loop, x.number);
  all_members(a, x.extent, x.begin, x.end, x.step, x.bind, x.queue, x.relay, x.unroll,
              x.keeps_invariants, x.body);
}
template <class A>
void members(A& a, If& x) {
  all_members(a, x.condition, x.body, x.otherwise);
}
template <class A>
void members(A&, Barrier&) {}
template <class A>
void members(A& a, Acquire& x) {
  all_members(a, x.by, x.body);
}
template <class A>
void members(A& a, InProblem& x) {
  all_members(a, x.group, x.item, x.body);
}
template <class A>
void members(A& a, ProblemGroup& x) {
  all_members(a, x.begin, x.item, x.sizes, x.values, x.buffers, x.arguments, x.scalars);
}
template <class A>
void members(A& a, Stmt& x) {
  a(x.node);
}

/// An archive that goes into everything and does nothing with what it meets: `D` overrides what it
/// looks for. Its parameters are const where the program is not to be changed.
template <class D>
class FieldVisitor {
public:
  template <class T>
  void operator()(T& field) {
    D& self = static_cast<D&>(*this);
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, Scalar>)
      return;
    else if constexpr (requires { self.visit(field); })
      self.visit(field);
    else if constexpr (requires { field.has_value(); }) {
      if (field)
        self(*field);
    } else if constexpr (requires { std::variant_size<T>::value; })
      std::visit([&](auto& alternative) { self(alternative); }, field);
    else if constexpr (requires { field.begin(); })
      for (auto& item : field)
        self(item);
    else
      members(self, field);
  }
  void id(IdKind, int&) {}
  void ids(IdKind kind, std::vector<int>& list) {
    for (int& id : list)
      static_cast<D&>(*this).id(kind, id);
  }
};

} // namespace egret::kernel
