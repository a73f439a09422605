// Trees of tensors: structs, containers and tuples that a visitor walks. Models, optimizers and the
// arguments of compiled functions are such trees.
#pragma once

#include "egret/tensor.h"

#include <array>
#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace egret {

/// Declares the fields that a visitor sees, by their own names:
///   struct Mlp { Linear up, down; EGRET_FIELDS(up, down) };
/// A type may as well write  template <class V> void visit(V& v) { v("up", up); v("down", down); }
#define EGRET_FIELDS(...)                                                                          \
  template <class EgretVisitor>                                                                    \
  void visit(EgretVisitor& egret_visitor) {                                                        \
    EGRET_FOR_EACH_FIELD(__VA_ARGS__)                                                              \
  }

#define EGRET_PARENS ()
#define EGRET_EXPAND(...) EGRET_EXPAND3(EGRET_EXPAND3(EGRET_EXPAND3(EGRET_EXPAND3(__VA_ARGS__))))
#define EGRET_EXPAND3(...) EGRET_EXPAND2(EGRET_EXPAND2(EGRET_EXPAND2(EGRET_EXPAND2(__VA_ARGS__))))
#define EGRET_EXPAND2(...) EGRET_EXPAND1(EGRET_EXPAND1(EGRET_EXPAND1(EGRET_EXPAND1(__VA_ARGS__))))
#define EGRET_EXPAND1(...) __VA_ARGS__
#define EGRET_FOR_EACH_FIELD(...) __VA_OPT__(EGRET_EXPAND(EGRET_ONE_FIELD(__VA_ARGS__)))
#define EGRET_ONE_FIELD(field, ...)                                                                \
  egret_visitor(#field, field);                                                                    \
  __VA_OPT__(EGRET_NEXT_FIELD EGRET_PARENS(__VA_ARGS__))
#define EGRET_NEXT_FIELD() EGRET_ONE_FIELD

/// What receives the leaves of a tree, in a fixed order. `path` is dotted: "layers.0.weight".
class TreeVisitor {
public:
  virtual ~TreeVisitor() = default;
  virtual void tensor(const std::string& path, Tensor& value) = 0;
  /// A number, enum or character: part of the structure. `bits` tells its value.
  virtual void constant(const std::string& path, std::uint64_t bits) {
    (void)path;
    (void)bits;
  }
  virtual void text(const std::string& path, const std::string& value) {
    (void)path;
    (void)value;
  }
  /// The length of a container, or whether an optional or pointer holds something.
  virtual void count(const std::string& path, std::size_t size) {
    (void)path;
    (void)size;
  }
  /// False when the paths are not needed; they are then empty.
  virtual bool wants_paths() const { return true; }
};

namespace detail {

template <class T>
struct IsTuple : std::false_type {};
template <class... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct IsTuple<std::pair<A, B>> : std::true_type {};
template <class T>
struct IsMaybe : std::false_type {};
template <class T>
struct IsMaybe<std::optional<T>> : std::true_type {};
template <class T, class D>
struct IsMaybe<std::unique_ptr<T, D>> : std::true_type {};
template <class T>
struct IsMaybe<std::shared_ptr<T>> : std::true_type {};
template <class T>
struct IsVariant : std::false_type {};
template <class... T>
struct IsVariant<std::variant<T...>> : std::true_type {};
template <class T>
struct IsMap : std::false_type {};
template <class... T>
struct IsMap<std::map<T...>> : std::true_type {};
template <class... T>
struct IsMap<std::unordered_map<T...>> : std::true_type {};

struct AnyVisitor {
  template <class T>
  void operator()(const char*, T&) {}
};
template <class T>
concept HasVisit = requires(T& value, AnyVisitor& visitor) {
  value.visit(visitor);
};
template <class T>
concept IsRange = requires(T& value) {
  value.begin();
  value.end();
  value.size();
};

template <class K>
std::string key_text(const K& key) {
  if constexpr (std::is_convertible_v<K, std::string>)
    return key;
  else
    return std::to_string(key);
}

template <class T>
void walk(const std::string& path, T& value, TreeVisitor& visitor);

struct FieldVisitor {
  const std::string& path;
  TreeVisitor& visitor;
  template <class T>
  void operator()(const char* name, T& field) {
    if (!visitor.wants_paths() ||
        *name == '\0') // an unnamed field: its own fields stand in its owner's place
      walk(path, field, visitor);
    else if (path.empty())
      walk(name, field, visitor);
    else
      walk(path + "." + name, field, visitor);
  }
  template <class T>
  void operator()(const std::string& name, T& field) {
    (*this)(name.c_str(), field);
  }
};

template <class T>
void walk(const std::string& path, T& value, TreeVisitor& visitor) {
  FieldVisitor field{path, visitor};
  if constexpr (std::is_same_v<T, Tensor>) {
    visitor.tensor(path, value);
  } else if constexpr (std::is_const_v<T>) {
    // A visitor of const trees promises not to put other tensors in (compile() restores them).
    walk(path, const_cast<std::remove_const_t<T>&>(value), visitor);
  } else if constexpr (std::is_floating_point_v<T>) {
    double wide = static_cast<double>(value);
    std::uint64_t bits;
    static_assert(sizeof bits == sizeof wide);
    __builtin_memcpy(&bits, &wide, sizeof bits);
    visitor.constant(path, bits);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    visitor.constant(path, static_cast<std::uint64_t>(value));
  } else if constexpr (std::is_same_v<T, std::string>) {
    visitor.text(path, value);
  } else if constexpr (HasVisit<T>) {
    value.visit(field);
  } else if constexpr (IsTuple<T>::value) {
    std::apply(
        [&](auto&... part) {
          int i = 0;
          (field(std::to_string(i++), part), ...);
        },
        value);
  } else if constexpr (IsMaybe<T>::value) {
    visitor.count(path, value ? 1 : 0);
    if (value)
      walk(path, *value, visitor);
  } else if constexpr (IsVariant<T>::value) {
    visitor.count(path, value.index());
    std::visit([&](auto& held) { walk(path, held, visitor); }, value);
  } else if constexpr (IsMap<T>::value) {
    visitor.count(path, value.size());
    // In the order of the keys, so that the order of an unordered map does not matter.
    std::map<typename T::key_type, typename T::mapped_type*> ordered;
    for (auto& [key, held] : value)
      ordered.emplace(key, &held);
    for (auto& [key, held] : ordered) {
      visitor.text(path, key_text(key));
      field(key_text(key), *held);
    }
  } else if constexpr (IsRange<T>) {
    visitor.count(path, value.size());
    if constexpr (std::is_same_v<T, std::vector<bool>>) {
      for (bool bit : value)
        visitor.constant(path, bit);
    } else {
      std::size_t i = 0;
      for (auto& held : value)
        field(visitor.wants_paths() ? std::to_string(i++) : std::string(), held);
    }
  } else if constexpr (std::is_same_v<T, std::monostate> || std::is_empty_v<T>) {
    // nothing inside
  } else {
    static_assert(HasVisit<T>, "egret: this type is no tree of tensors: give it EGRET_FIELDS(...) "
                               "or template <class V> void visit(V& v)");
  }
}

} // namespace detail

/// Walks a tree: tensors, numbers, enums, strings, types with visit(), vectors, arrays, maps,
/// pairs, tuples, optionals, variants, unique_ptr and shared_ptr, in any nesting.
template <class T>
void visit_tree(T& tree, TreeVisitor& visitor, const std::string& path = {}) {
  detail::walk(path, tree, visitor);
}

/// The tensors of a tree with their dotted paths, in order. They are handles: updating one updates
/// the tree.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
template <class T>
std::vector<NamedTensor> named_tensors(T& tree) {
  struct Collect final : TreeVisitor {
    std::vector<NamedTensor> found;
    void tensor(const std::string& path, Tensor& value) override { found.push_back({path, value}); }
  } collect;
  visit_tree(tree, collect);
  return std::move(collect.found);
}

} // namespace egret
