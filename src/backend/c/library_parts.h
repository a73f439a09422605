// What the texts of libraries have in common, whatever runs their kernels: parameters, sizes, the
// values that are part of them, where the arguments of launches lie.
#pragma once

#include "backend/c/language.h"
#include "backend/c/library.h"
#include "backend/c/library_names.h"
#include "backend/clike/index_text.h"

#include <string>
#include <vector>

namespace egret::backend::c {

class LibraryParts {
public:
  virtual ~LibraryParts() = default;

protected:
  struct Parameter {
    enum class Kind : std::uint8_t { Size, Number, Read, Replaced, Written } kind = Kind::Size;
    const char* type = "int64_t"; ///< of an element
    std::string name, note;
    Expr bytes = 0; ///< of an array
    bool is_array() const { return kind >= Kind::Read; }
    std::string declaration() const;
  };
  /// What a launch is given, as C expressions.
  struct Arguments {
    std::vector<std::string> pointers, dims, scalars;
    std::string fill; ///< statements that put scalars which are parameters into their array
  };
  /// A result that no kernel writes where it is wanted.
  struct Copy {
    std::string to, from;
    Expr bytes = 0;
    const char* number = nullptr; ///< `from` is a number of this type, not an address
  };

  /// The arguments must outlive this. Error(Value) when the interface's name is no C identifier
  /// that may be used. `endings`: of the other names that the header declares, which begin with the
  /// library's; `reserved`: further parameters.
  LibraryParts(const kernel::Plan& plan, const ir::Graph& graph, const LibraryInterface& interface,
               std::span<const std::string_view> endings,
               std::span<const std::string_view> reserved);

  /// Fills the lists below; before anything else.
  void name_parameters();
  /// Where the bytes that are part of the library as the array `name` are at run time.
  virtual std::string address_of_value(const std::string& name, std::size_t /*bytes*/) {
    return name;
  }

  std::string number(const Expr& e) const { return index_.wide_text(e); }
  const ir::Node& input(std::size_t slot) const { return graph_[graph_.inputs()[slot]]; }
  std::string address(const kernel::Slot& slot) const;
  /// Constants d0, d1 ... from the parameters.
  std::string dims_text() const;
  /// Mentions all parameters, so that no compiler warns of what no kernel reads.
  std::string uses_text() const;
  /// Returns NAME_BAD_SIZE where a size is none that the plan is for; begins with dims_text().
  std::string guards_text() const;
  /// An expression over the dims of a launch's kernel, over those of the plan.
  Expr by_plan_dims(const Expr& e, const kernel::KernelProgram& program,
                    const kernel::Step& step) const;
  /// `scalars`: the array that Arguments::fill writes to.
  Arguments arguments_of(const kernel::Step& step, std::string_view scalars) const;
  std::vector<Copy> copies() const;

  std::string size_parameters() const;  ///< of NAME_memory
  std::string array_parameters() const; ///< each with ", " behind it
  std::string notes() const;            ///< of all parameters, for a comment
  std::string header_of(const std::string& declarations) const; ///< for C and C++, guarded
  std::string prelude_of(const std::string& code) const;

  const kernel::Plan& plan_;
  const ir::Graph& graph_;
  const LibraryInterface& interface_;
  std::vector<Parameter> parameters_;
  std::string values_; ///< definitions of arrays

private:
  std::string type_text(DType type, const Shape& shape) const;
  void name_inputs();
  void name_results();
  std::string value(std::span<const std::byte> bytes);
  const char* number_type(const LibraryInterface::Result& result) const;
  Expr bytes_of(DType type, const Shape& shape) const;

  LibraryNames names_;
  kernel::KernelProgram dims_only_; ///< for the texts of sizes
  CLanguage language_;
  clike::IndexText index_{dims_only_, language_,
                          [](kernel::ValueId, int) { return std::string(); }};
  std::vector<std::string> dims_, inputs_; ///< names by dim of the plan and input; or of a value
  std::vector<std::string> results_;       ///< names by result
  std::vector<std::string> fixed_;         ///< by result: where it stands if it is bytes
  std::vector<std::string> outputs_;       ///< address by output of the plan
  int value_count_ = 0;
};

/// The bytes as the initializer of an array of uint64_t, without braces.
std::string words_of(std::span<const std::byte> bytes);

} // namespace egret::backend::c
