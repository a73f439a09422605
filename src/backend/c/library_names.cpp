#include "backend/c/library_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace egret::backend::c {

namespace {

/// Of C and, as the header is read by it too, of C++.
constexpr std::string_view kKeywords[] = {
    "alignas",       "alignof",      "asm",       "auto",     "bool",      "break",
    "case",          "char",         "class",     "const",    "continue",  "default",
    "delete",        "do",           "double",    "else",     "enum",      "extern",
    "false",         "float",        "for",       "goto",     "if",        "inline",
    "int",           "long",         "main",      "new",      "private",   "public",
    "register",      "restrict",     "return",    "short",    "signed",    "sizeof",
    "static",        "struct",       "switch",    "template", "this",      "true",
    "typedef",       "union",        "unix",      "unsigned", "using",     "virtual",
    "void",          "volatile",     "while",     "and",      "and_eq",    "bitand",
    "bitor",         "catch",        "char8_t",   "char16_t", "char32_t",  "compl",
    "concept",       "constexpr",    "decltype",  "explicit", "export",    "friend",
    "linux",         "mutable",      "namespace", "noexcept", "not",       "not_eq",
    "nullptr",       "operator",     "or",        "or_eq",    "protected", "requires",
    "static_assert", "thread_local", "throw",     "try",      "typeid",    "typename",
    "typeof",        "wchar_t",      "xor",       "xor_eq"};

/// Of the headers that the text includes: functions, types and macros. Of math.h also with f and l.
constexpr std::string_view kOfHeaders[] = {"abort",         "abs",
                                           "aligned_alloc", "atexit",
                                           "atof",          "atoi",
                                           "bsearch",       "calloc",
                                           "dlclose",       "dlerror",
                                           "dlopen",        "dlsym",
                                           "div",           "exit",
                                           "free",          "getenv",
                                           "labs",          "ldiv",
                                           "llabs",         "malloc",
                                           "memchr",        "memcmp",
                                           "memcpy",        "memmove",
                                           "memset",        "omp_get_max_threads",
                                           "qsort",         "rand",
                                           "realloc",       "srand",
                                           "strcat",        "strchr",
                                           "strcmp",        "strcpy",
                                           "strlen",        "strtod",
                                           "system",        "size_t",
                                           "int8_t",        "int16_t",
                                           "int32_t",       "int64_t",
                                           "uint8_t",       "uint16_t",
                                           "uint32_t",      "uint64_t",
                                           "NULL",          "NAN",
                                           "INFINITY",      "HUGE_VAL",
                                           "isnan",         "isinf",
                                           "isfinite",      "signbit",
                                           "fpclassify",    "offsetof"};
constexpr std::string_view kOfMath[] = {
    "acos",      "acosh",    "asin",    "asinh", "atan",      "atan2",     "atanh",      "cbrt",
    "ceil",      "copysign", "cos",     "cosh",  "erf",       "erfc",      "exp",        "exp2",
    "expm1",     "fabs",     "fdim",    "floor", "fma",       "fmax",      "fmin",       "fmod",
    "frexp",     "gamma",    "hypot",   "ilogb", "j0",        "j1",        "jn",         "ldexp",
    "lgamma",    "llrint",   "llround", "log",   "log10",     "log1p",     "log2",       "logb",
    "lrint",     "lround",   "modf",    "nan",   "nearbyint", "nextafter", "nexttoward", "pow",
    "remainder", "remquo",   "rint",    "round", "scalb",     "scalbln",   "scalbn",     "sin",
    "sinh",      "sqrt",     "tan",     "tanh",  "tgamma",    "trunc",     "y0",         "y1",
    "yn"};

/// Whether a name means something else in the text.
bool is_taken(std::string_view word) {
  const auto in = [](const auto& list, std::string_view one) {
    return std::ranges::find(list, one) != std::end(list);
  };
  return in(kKeywords, word) || in(kOfHeaders, word) || in(kOfMath, word) ||
         ((word.ends_with('f') || word.ends_with('l')) &&
          in(kOfMath, word.substr(0, word.size() - 1))) ||
         word.starts_with("eg_") || word.starts_with("k_") || word.starts_with("omp_") ||
         word.starts_with("atomic_") || word.starts_with("memory_order") ||
         word.starts_with("va_") || word.starts_with("RTLD_");
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

} // namespace

bool is_function_name(std::string_view word) {
  return !word.empty() && word.size() <= 63 && is_letter(word.front()) && !is_taken(word) &&
         std::ranges::all_of(word, [](char c) { return is_letter(c) || is_digit(c) || c == '_'; });
}

LibraryNames::LibraryNames(std::size_t dims, std::span<const std::string> reserved)
    : used_(reserved.begin(), reserved.end()) {
  for (std::size_t d = 0; d < dims; ++d)
    used_.insert(fmt::format("d{}", d));
}

std::string LibraryNames::take(std::string_view wanted, std::string_view otherwise) {
  std::string name;
  for (char c : wanted.substr(0, 60))
    name += is_letter(c) || is_digit(c) ? c : '_';
  if (name.empty() || name.find_first_not_of('_') == std::string::npos)
    name = otherwise;
  if (!is_letter(name.front()))
    name = "p" + name;
  if (is_taken(name))
    name = "p_" + name;
  std::string one = name;
  for (int n = 2; !used_.insert(one).second; ++n)
    one = fmt::format("{}_{}", name, n);
  return one;
}

} // namespace egret::backend::c
