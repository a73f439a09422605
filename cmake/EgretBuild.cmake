# Compiler settings and third-party packages, each named in docs/dependencies.md.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
add_compile_options(-fPIC) # for every target alike, so that all can share precompiled headers
set(CMAKE_CXX_VISIBILITY_PRESET default)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# -O2: -O3 costs a sixth of the build and changes no figure of egret bench, whose kernels LLVM and NVRTC compile.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

# GCC's garbage collector begins at 512 MiB, which few sources reach: a twelfth of the build's time.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options("SHELL:--param ggc-min-heapsize=524288")
endif()

find_program(EGRET_CCACHE ccache)
if(EGRET_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${EGRET_CCACHE})
endif()
find_program(EGRET_MOLD mold)
if(EGRET_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(egret_options INTERFACE)
target_compile_options(egret_options INTERFACE -Wall -Wextra -Wpedantic -Wno-missing-field-initializers -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(egret_options INTERFACE -Wno-restrict -Wno-array-bounds) # false alarms in std::string (GCC bugs 105651, 105329)
endif()
if(EGRET_STRICT)
  target_compile_options(egret_options INTERFACE -Werror)
  target_compile_definitions(egret_options INTERFACE EGRET_CHECKS=1 _GLIBCXX_ASSERTIONS)
endif()
if(EGRET_SANITIZE)
  add_compile_options(-fsanitize=${EGRET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${EGRET_SANITIZE})
endif()

# The self-contained binary takes static parts where there are any; Debian has fmt as headers or shared, so cmake/fmt.cpp
# compiles its headers into an archive.
if(EGRET_STATIC_LLVM)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
  add_link_options(-static-libstdc++ -static-libgcc -Wl,--gc-sections)
  # The same definition as with the shared library, so that both builds share compiled objects (ccache).
  add_library(egret_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt.cpp)
  target_compile_definitions(egret_fmt PUBLIC FMT_SHARED)
  add_library(fmt::fmt ALIAS egret_fmt)
else()
  find_package(fmt REQUIRED)
endif()
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(LLVM 19.1 REQUIRED CONFIG HINTS /usr/lib/llvm-19/lib/cmake/llvm)
# LLVM's own archives name the shared zstd; where only archives are wanted, its place is taken by the static one.
if(EGRET_STATIC_LLVM AND NOT TARGET zstd::libzstd_shared)
  find_library(EGRET_ZSTD_ARCHIVE NAMES libzstd.a REQUIRED)
  add_library(zstd::libzstd_shared INTERFACE IMPORTED)
  target_link_libraries(zstd::libzstd_shared INTERFACE ${EGRET_ZSTD_ARCHIVE})
endif()
find_path(EGRET_XXHASH_INCLUDE xxhash.h REQUIRED)

# egret_find(NAME HEADER LIBRARY): a package without CMake files of its own, as the target NAME; static in the self-contained binary.
function(egret_find NAME HEADER LIBRARY)
  find_path(${NAME}_INCLUDE ${HEADER} REQUIRED)
  find_library(${NAME}_LIBRARY ${LIBRARY} REQUIRED)
  add_library(${NAME} INTERFACE)
  target_include_directories(${NAME} SYSTEM INTERFACE ${${NAME}_INCLUDE})
  target_link_libraries(${NAME} INTERFACE ${${NAME}_LIBRARY})
endfunction()
egret_find(egret_pcre2 pcre2.h pcre2-8)
egret_find(egret_utf8proc utf8proc.h utf8proc)

# Boost.Asio and Boost.Beast: headers only, without the libraries that Boost's own headers would ask for.
find_path(EGRET_BOOST_INCLUDE boost/beast/core.hpp REQUIRED)
add_library(egret_boost INTERFACE)
target_include_directories(egret_boost SYSTEM INTERFACE ${EGRET_BOOST_INCLUDE})
target_compile_definitions(egret_boost INTERFACE BOOST_ALL_NO_LIB BOOST_ERROR_CODE_HEADER_ONLY)
# Boost.Asio has fences, of which GCC says that its thread sanitizer does not know them.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND EGRET_SANITIZE MATCHES thread)
  target_compile_options(egret_boost INTERFACE -Wno-tsan)
endif()

# LLVM: one shared library for everyday builds (links in a second), static parts for ./x dist. Its start takes longer than all else
# of a short command, so what uses it is a library of its own (cmake/EgretModules.cmake) that a process loads when it needs it, but for
# the self-contained binary and under sanitizers.
set(EGRET_LLVM_ON_DEMAND ON)
if(EGRET_STATIC_LLVM OR EGRET_SANITIZE)
  set(EGRET_LLVM_ON_DEMAND OFF)
endif()
add_library(egret_llvm INTERFACE)
target_include_directories(egret_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
if(EGRET_STATIC_LLVM)
  llvm_map_components_to_libnames(EGRET_LLVM_LIBS core orcjit native passes irreader)
  target_link_libraries(egret_llvm INTERFACE ${EGRET_LLVM_LIBS})
else()
  target_link_libraries(egret_llvm INTERFACE LLVM)
endif()

# Precompiled headers: egret_pch for every target, egret_test_pch for what takes GoogleTest. The build without them
# (EGRET_PCH=OFF, preset "plain") shows that each file includes what it uses.
file(WRITE ${CMAKE_BINARY_DIR}/pch/empty.cpp "")
function(egret_pch_target NAME)
  add_library(${NAME} OBJECT ${CMAKE_BINARY_DIR}/pch/empty.cpp)
  target_link_libraries(${NAME} PRIVATE egret_options fmt::fmt Threads::Threads)
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_precompile_headers(${NAME} PRIVATE ${ARGN})
endfunction()
function(egret_use_pch TARGET PCH)
  if(EGRET_PCH)
    target_precompile_headers(${TARGET} REUSE_FROM ${PCH})
  endif()
endfunction()
if(EGRET_PCH)
  egret_pch_target(egret_pch ${PROJECT_SOURCE_DIR}/cmake/pch.h)
  if(EGRET_BUILD_TESTS)
    find_package(GTest REQUIRED)
    egret_pch_target(egret_test_pch ${PROJECT_SOURCE_DIR}/cmake/test_pch.h)
    target_link_libraries(egret_test_pch PRIVATE GTest::gtest)
    if(EGRET_SANITIZE)
      target_compile_options(egret_test_pch PRIVATE -O0) # as tests/CMakeLists.txt compiles
    endif()
  endif()
endif()
