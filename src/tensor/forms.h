// What nodes of one structure share: their form, which is inferred once in a loop that records the
// same operations again.
#pragma once

#include "egret/ir.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace egret::detail {

/// Op, dtype, shape and attributes of a node, which never change; its inputs are not used.
using FormPtr = std::shared_ptr<const ir::Node>;
FormPtr make_form(Op op, DType dtype, Shape shape, ir::Attrs attrs);

/// The forms that one thread has made lately. What comes again gets the same object: by the op, the
/// forms of the operands and the attributes, which decide all the rest, and where these are new, by
/// what the form itself is, so that a value that is updated in a loop keeps its form. Bounded.
class Forms {
public:
  using Operands = std::span<const FormPtr* const>;
  /// `make()` makes one that was not made lately.
  template <class Make>
  const FormPtr& of(Op op, Operands operands, const ir::Attrs& attrs, Make&& make) {
    const std::uint64_t key = key_of(op, operands, attrs);
    Derived* const known = derived_.find(
        key, [&](const Derived& one) { return one.form->op == op && one.is(operands, attrs); });
    if (known) [[likely]]
      return known->form;
    return put(key, operands, same(make()));
  }
  /// An equal one that was made lately, or else this one.
  const FormPtr& same(FormPtr form);

private:
  // Of the entries of a key the two that were put last.
  template <class Entry, std::size_t kSets>
  class Table {
  public:
    template <class Is>
    Entry* find(std::uint64_t key, Is&& is) noexcept {
      for (Slot& slot : sets_[key % kSets])
        if (slot.key == key && slot.entry.form && is(slot.entry))
          return &slot.entry;
      return nullptr;
    }
    Entry& put(std::uint64_t key, Entry entry) {
      auto& [newest, other] = sets_[key % kSets];
      other = std::exchange(newest, {key, std::move(entry)});
      return newest.entry;
    }

  private:
    struct Slot {
      std::uint64_t key = 0;
      Entry entry;
    };
    std::array<std::array<Slot, 2>, kSets> sets_;
  };
  struct Derived {
    std::array<FormPtr, 3> operands;
    FormPtr form;
    bool is(Operands given, const ir::Attrs& attrs) const noexcept;
  };
  struct Single {
    FormPtr form;
  };

  static std::uint64_t key_of(Op op, Operands operands, const ir::Attrs& attrs) noexcept;
  const FormPtr& put(std::uint64_t key, Operands operands, const FormPtr& form);

  Table<Derived, 512> derived_;
  Table<Single, 512> forms_;
};

} // namespace egret::detail
