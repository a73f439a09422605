# egret_embed_viewer(TARGET FILE): the page becomes a source of TARGET that defines view::viewer_page().
function(egret_embed_viewer TARGET FILE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${FILE})
  file(READ ${FILE} page)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/viewer_page.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [==[
#include "view/page.h"

std::string_view egret::view::viewer_page() {
  return R"EGRETPAGE(@page@)EGRETPAGE";
}
]==])
  set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${TARGET} PRIVATE ${source})
endfunction()
