// Files for tests: a folder that goes away, bytes in and out, and the message of an error.
#pragma once

#include "egret/error.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <string_view>

namespace egret::test {

class TempFolder {
public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "egret-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw std::runtime_error("cannot make a temporary folder");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(out.good());
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string out;
  for (; bytes > 0; --bytes, value >>= 8U) // of more than 8 the rest are zeros
    out += static_cast<char>(value);
  return out;
}

inline std::string big_endian(std::uint64_t value, int bytes) {
  std::string out = little_endian(value, bytes);
  return {out.rbegin(), out.rend()};
}

/// The message of the Error of `kind` that `run` must throw.
inline std::string error_of(ErrorKind kind, const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(name_of(error.kind()), std::string(name_of(kind))) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// The least memory limit in bytes that the refusal of one that `run` was given (1 byte, say)
/// names: tests take limits from it, as the scratch memory of kernels differs between CPUs.
inline std::int64_t least_limit(const std::function<void()>& run) {
  const std::string message = error_of(ErrorKind::Memory, run),
                    before = "the least that was found is ";
  const auto at = message.find(before);
  EXPECT_NE(at, std::string::npos) << message;
  return at == std::string::npos ? 0 : std::stoll(message.substr(at + before.size()));
}

/// Expects an Error(File) that names the file and contains `part`.
inline void expect_refused(const std::filesystem::path& path, const std::function<void()>& run,
                           std::string_view part) {
  std::string message = error_of(ErrorKind::File, run);
  EXPECT_NE(message.find(path.string()), std::string::npos) << message;
  EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
}

} // namespace egret::test
