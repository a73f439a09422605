# Writes OUT, a header with a hash of the sources below ROOT that decide how a schedule becomes code: any change of them, however
# small, makes what was measured before stale.
file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/kernel/*.cpp ${ROOT}/kernel/*.h ${ROOT}/backend/c*/*.cpp ${ROOT}/backend/c*/*.h)
list(SORT sources)
set(all "")
foreach(source ${sources})
  file(SHA256 ${ROOT}/${source} hash)
  string(APPEND all "${source} ${hash}\n")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 word)
file(WRITE ${OUT} "#pragma once\n\n#define EGRET_GENERATORS_VERSION 0x${word}u\n")
