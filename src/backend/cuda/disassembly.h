// The instructions of CUDA texts, with the lines that they come from.
#pragma once

#include "backend/cuda/nvrtc.h"

namespace egret::backend::cuda {

/// What `nvdisasm` of the CUDA toolkit says of a text's machine code where there is one on the
/// PATH, else its PTX. Lines of the text are counted from `first_line`.
std::string disassembly(const Nvrtc& compiler, std::string_view text,
                        const std::string& architecture, const std::string& name, int first_line);

/// A listing with `// source N` behind each instruction of line N instead of what assemblers write
/// before it (PTX: `.loc`; nvdisasm: `//## File "x.cu", line N`), and without what describes it to
/// debuggers. Lines are counted from `first_line`.
std::string with_source_lines(std::string_view listing, int first_line);

} // namespace egret::backend::cuda
