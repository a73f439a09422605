# What other projects get: libegret.so with every module in it, the public headers, a relocatable package and the command.
# docs/install.md shows its use; tests/consume installs it, moves it and builds against it.
if(EGRET_STATIC_LLVM)
  return() # the self-contained binary is copied, not installed
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The modules' objects, so that nothing is dropped, and their third parties, which stay inside.
get_property(modules GLOBAL PROPERTY EGRET_MODULES)
get_property(on_demand GLOBAL PROPERTY EGRET_ON_DEMAND)
list(REMOVE_ITEM modules ${on_demand})
set(objects)
foreach(module ${modules})
  get_target_property(type egret_${module} TYPE)
  if(type STREQUAL STATIC_LIBRARY)
    list(APPEND objects $<TARGET_OBJECTS:egret_${module}>)
  endif()
endforeach()
add_library(egret_shared SHARED ${objects})
add_library(egret::egret ALIAS egret_shared)
set_target_properties(egret_shared PROPERTIES OUTPUT_NAME egret EXPORT_NAME egret LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/libegret.map)
target_compile_features(egret_shared INTERFACE cxx_std_20)
target_include_directories(egret_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_options(egret_shared PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/libegret.map)
# By file, since a shared library's package would otherwise name the targets that it was linked with.
target_link_libraries(egret_shared PRIVATE $<$<NOT:$<BOOL:${EGRET_LLVM_ON_DEMAND}>>:$<BUILD_INTERFACE:egret_llvm>> $<TARGET_LINKER_FILE:fmt::fmt>
  $<TARGET_LINKER_FILE:ZLIB::ZLIB> ${SQLite3_LIBRARIES}
  ${egret_pcre2_LIBRARY} ${egret_utf8proc_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS})

if(TARGET egret_llvm_library)
  add_dependencies(egret_shared egret_llvm_library) # opened at run time
endif()
install(TARGETS egret_shared EXPORT egret-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/egret DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET egret)
  install(TARGETS egret RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/egret)
install(EXPORT egret-targets NAMESPACE egret:: DESTINATION ${package})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/egretConfig.cmake.in
  ${PROJECT_BINARY_DIR}/egretConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/egretConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/egretConfig.cmake ${PROJECT_BINARY_DIR}/egretConfigVersion.cmake
  DESTINATION ${package})
