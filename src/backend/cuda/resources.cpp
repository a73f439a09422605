// What kernels take of a multiprocessor, read from the assembler's log and from cubins.
#include "backend/cuda/nvrtc.h"
#include "support/fail.h"

#include <charconv>
#include <cstring>
#include <map>

namespace egret::backend::cuda {
namespace {

// The number that stands before `unit` in a line; 0 when the line has no such unit.
std::int64_t number_before(std::string_view line, std::string_view unit) {
  const std::size_t at = line.find(unit);
  if (at == std::string_view::npos)
    return 0;
  std::size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9')
    --begin;
  std::int64_t value = 0;
  std::from_chars(line.data() + begin, line.data() + at, value);
  return value;
}

std::string_view quoted(std::string_view line) {
  const std::size_t begin = line.find('\'');
  const std::size_t end = begin == std::string_view::npos ? begin : line.find('\'', begin + 1);
  return end == std::string_view::npos ? std::string_view{}
                                       : line.substr(begin + 1, end - begin - 1);
}

} // namespace

std::vector<KernelResources> resources_of_log(std::string_view log) {
  std::vector<KernelResources> kernels;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    if (line.find("Compiling entry function") != std::string_view::npos) {
      kernels.emplace_back();
      kernels.back().kernel = quoted(line);
    }
    if (kernels.empty())
      continue;
    KernelResources& k = kernels.back();
    if (line.find("bytes stack frame") != std::string_view::npos) {
      k.stack_bytes = number_before(line, " bytes stack frame");
      k.spill_stores = number_before(line, " bytes spill stores");
      k.spill_loads = number_before(line, " bytes spill loads");
    }
    if (line.find("Used ") != std::string_view::npos) {
      k.registers = static_cast<int>(number_before(line, " registers"));
      k.shared_bytes = number_before(line, " bytes smem");
      k.constant_bytes = number_before(line, " bytes cmem[0]");
    }
  }
  return kernels;
}

namespace {

// A cubin is an ELF file of 64 bits: one section .text.NAME a kernel, whose sh_info holds the
// register count in its top byte; .nv.shared.NAME is its static shared memory, .nv.info holds stack
// sizes by symbol.
class Elf {
public:
  explicit Elf(std::string_view bytes) : bytes_(bytes) {
    if (bytes.size() < 64 ||
        bytes.substr(0, 4) != "\x7f"
                              "ELF" ||
        bytes[4] != 2)
      fail(ErrorKind::File, "cubin: {} bytes that are no 64-bit ELF file", bytes.size());
    table_ = get<std::uint64_t>(40);
    count_ = get<std::uint16_t>(60);
    if (get<std::uint16_t>(58) != 64)
      fail(ErrorKind::File, "cubin: section headers of {} bytes", get<std::uint16_t>(58));
    names_ = offset(get<std::uint16_t>(62));
  }
  std::size_t count() const { return count_; }
  std::string_view name(std::size_t section) const {
    return text(names_ + get<std::uint32_t>(header(section)));
  }
  std::uint64_t offset(std::size_t section) const {
    return get<std::uint64_t>(header(section) + 24);
  }
  std::uint64_t size(std::size_t section) const { return get<std::uint64_t>(header(section) + 32); }
  std::uint32_t link(std::size_t section) const { return get<std::uint32_t>(header(section) + 40); }
  std::uint32_t info(std::size_t section) const { return get<std::uint32_t>(header(section) + 44); }

  template <class T>
  T get(std::uint64_t at) const {
    T value;
    if (at > bytes_.size() || bytes_.size() - at < sizeof value)
      fail(ErrorKind::File, "cubin: cut off at byte {}", bytes_.size());
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return value;
  }
  std::string_view text(std::uint64_t at) const {
    if (at >= bytes_.size())
      fail(ErrorKind::File, "cubin: cut off at byte {}", bytes_.size());
    const std::string_view rest = bytes_.substr(at);
    return rest.substr(0, rest.find('\0'));
  }

private:
  std::uint64_t header(std::size_t section) const {
    if (section >= count_)
      fail(ErrorKind::File, "cubin: section {} of {}", section, count_);
    return table_ + 64 * section;
  }
  std::string_view bytes_;
  std::uint64_t table_ = 0, names_ = 0;
  std::size_t count_ = 0;
};

} // namespace

std::vector<KernelResources> resources_of_cubin(std::string_view cubin) {
  if (cubin.starts_with("//") || cubin.starts_with("\n//")) // PTX
    return {};
  const Elf elf(cubin);
  std::map<std::string_view, KernelResources> found;
  for (std::size_t s = 0; s < elf.count(); ++s)
    if (elf.name(s).starts_with(".text.")) {
      KernelResources& k = found[elf.name(s).substr(6)];
      k.kernel = elf.name(s).substr(6);
      k.registers = static_cast<int>(elf.info(s) >> 24);
    }
  for (std::size_t s = 0; s < elf.count(); ++s) {
    if (elf.name(s).starts_with(".nv.shared."))
      if (auto k = found.find(elf.name(s).substr(11)); k != found.end())
        k->second.shared_bytes = static_cast<std::int64_t>(elf.size(s));
    if (elf.name(s) != ".nv.info")
      continue;
    // Records {format, attribute, 16-bit size or value}; format 4 has `size` bytes behind it.
    const std::uint32_t symbols = elf.link(s);
    constexpr std::uint8_t kSized = 4, kFrameSize = 0x11, kRegisterCount = 0x2f;
    for (std::uint64_t at = elf.offset(s), end = at + elf.size(s); at + 4 <= end;) {
      const auto format = elf.get<std::uint8_t>(at), attribute = elf.get<std::uint8_t>(at + 1);
      const auto size = elf.get<std::uint16_t>(at + 2);
      if (format == kSized && size == 8 &&
          (attribute == kFrameSize || attribute == kRegisterCount)) {
        const std::uint64_t symbol = elf.offset(symbols) + 24ull * elf.get<std::uint32_t>(at + 4);
        const std::string_view name =
            elf.text(elf.offset(elf.link(symbols)) + elf.get<std::uint32_t>(symbol));
        const auto value = elf.get<std::uint32_t>(at + 8);
        if (auto k = found.find(name); k != found.end() && attribute == kFrameSize)
          k->second.stack_bytes = value;
        else if (k != found.end())
          k->second.registers = static_cast<int>(value);
      }
      at += 4 + (format == kSized ? size : 0);
    }
  }
  std::vector<KernelResources> kernels;
  for (auto& [name, k] : found)
    kernels.push_back(std::move(k));
  return kernels;
}

} // namespace egret::backend::cuda
