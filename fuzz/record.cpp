// Any bytes as a record of a compilation: an Error(Parse), or a page in which the record ends where
// the page's own text goes on.
#include "egret/error.h"
#include "view/page.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  const std::string_view page = view::viewer_page(), mark = "RECORD_GOES_HERE";
  const std::size_t before = page.find(mark), after = page.size() - before - mark.size();
  try {
    const std::string made =
        view::page_of_record("fuzz", {reinterpret_cast<const char*>(data), size});
    const std::string_view all = made;
    if (!all.starts_with(page.substr(0, before)) ||
        !all.ends_with(page.substr(before + mark.size())))
      std::abort();
    if (all.substr(before, all.size() - before - after).find('<') != std::string_view::npos)
      std::abort(); // could end the element
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Parse)
      std::abort();
  }
  return 0;
}
