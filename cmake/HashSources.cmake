# Writes OUT, a header with hashes of the sources below ROOT on which kept results depend: any change of them, however small, makes
# what was kept before stale. EGRET_GENERATORS_VERSION: how a schedule becomes code, for what was measured. EGRET_CPU_CODE_VERSION:
# how a program becomes machine code of the CPU.
function(hash_of name)
  set(patterns "")
  foreach(folder ${ARGN})
    list(APPEND patterns ${ROOT}/${folder}/*.cpp ${ROOT}/${folder}/*.h)
  endforeach()
  file(GLOB_RECURSE sources RELATIVE ${ROOT} ${patterns})
  list(SORT sources)
  set(all "")
  foreach(source ${sources})
    file(SHA256 ${ROOT}/${source} hash)
    string(APPEND all "${source} ${hash}\n")
  endforeach()
  string(SHA256 hash "${all}")
  string(SUBSTRING ${hash} 0 16 word)
  file(APPEND ${OUT}.new "#define ${name} 0x${word}u\n")
endfunction()

file(WRITE ${OUT}.new "#pragma once\n\n")
hash_of(EGRET_GENERATORS_VERSION kernel backend/c*)
hash_of(EGRET_CPU_CODE_VERSION ../include/egret ir kernel backend/common backend/cpu backend/cpu_codegen)
file(RENAME ${OUT}.new ${OUT})
