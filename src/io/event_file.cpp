#include "io/event_file.h"

#include "io/append_file.h"
#include "io/crc32c.h"

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <unistd.h>

namespace egret::io {

namespace {

enum Wire : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// --- writing

void put_fixed(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    out += static_cast<char>(value >> (8 * i));
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U)
    out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, std::uint32_t field, Wire wire) {
  put_varint(out, field << 3U | wire);
}

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_start(double seconds) {
  std::string event;
  put_key(event, 1, kFixed64);
  put_fixed(event, std::bit_cast<std::uint64_t>(seconds), 8);
  return event;
}

std::string record(std::string_view bytes) {
  std::string out;
  put_fixed(out, bytes.size(), 8);
  put_fixed(out, masked_crc32c(std::as_bytes(std::span(out))), 4);
  out += bytes;
  put_fixed(out, masked_crc32c(std::as_bytes(std::span(bytes))), 4);
  return out;
}

} // namespace

std::string version_record(double seconds) {
  std::string event = event_start(seconds);
  put_bytes(event, 3, "brain.Event:2");
  return record(event);
}

std::string scalars_record(double seconds, std::int64_t step, const Measurements& values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;
    put_bytes(value, 1, tag);
    put_key(value, 2, kFixed32);
    put_fixed(value, std::bit_cast<std::uint32_t>(static_cast<float>(number)), 4);
    put_bytes(summary, 1, value);
  }
  std::string event = event_start(seconds);
  put_key(event, 2, kVarint);
  put_varint(event, static_cast<std::uint64_t>(step));
  put_bytes(event, 5, summary);
  return record(event);
}

// --- reading

namespace {

std::uint64_t fixed(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8U | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// The fields of one message, in order.
class Message {
public:
  Message(const InputFile& file, std::uint64_t offset, std::string_view bytes)
      : file_(file), offset_(offset), bytes_(bytes) {}

  /// The next field, false at the end. Numbers stand in `number`, bytes in `bytes`.
  bool next() {
    if (at_ == bytes_.size())
      return false;
    const std::uint64_t key = varint();
    field = key >> 3U;
    wire = static_cast<std::uint32_t>(key & 7U);
    if (field == 0)
      bad("a field with the number 0");
    switch (wire) {
    case kVarint:
      number = varint();
      break;
    case kFixed64:
      number = fixed(take(8));
      break;
    case kFixed32:
      number = fixed(take(4));
      break;
    case kBytes:
      bytes = take(varint());
      break;
    default:
      bad(fmt::format("a field of the wire type {}", wire));
    }
    return true;
  }
  bool is(std::uint64_t number_of_field, Wire type) const {
    return field == number_of_field && wire == type;
  }
  Message message() const {
    return {file_, offset_ + static_cast<std::uint64_t>(bytes.data() - bytes_.data()), bytes};
  }

  std::uint64_t field = 0;
  std::uint32_t wire = 0;
  std::uint64_t number = 0;
  std::string_view bytes;

private:
  [[noreturn]] void bad(std::string_view what) const { file_.fail(offset_ + at_, "{}", what); }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_)
      bad(fmt::format("a field of {} bytes where {} are left", count, bytes_.size() - at_));
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  std::uint64_t varint() {
    constexpr unsigned kMostBits = 64;
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < kMostBits; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80)
        return value;
    }
    bad("a number of more than 64 bits");
  }

  const InputFile& file_;
  std::uint64_t offset_; ///< of the message in the file
  std::string_view bytes_;
  std::size_t at_ = 0;
};

void read_value(Message value, const ScalarEvent& common, std::vector<ScalarEvent>& out) {
  ScalarEvent event = common;
  bool scalar = false;
  while (value.next()) {
    if (value.is(1, kBytes))
      event.tag = value.bytes;
    if (value.is(2, kFixed32)) {
      event.value = std::bit_cast<float>(static_cast<std::uint32_t>(value.number));
      scalar = true;
    }
  }
  if (scalar)
    out.push_back(std::move(event));
}

void read_event(Message event, std::vector<ScalarEvent>& out) {
  ScalarEvent common;
  std::vector<Message> summaries; // fields may come in any order
  while (event.next()) {
    if (event.is(1, kFixed64))
      common.seconds = std::bit_cast<double>(event.number);
    if (event.is(2, kVarint))
      common.step = static_cast<std::int64_t>(event.number);
    if (event.is(5, kBytes))
      summaries.push_back(event.message());
  }
  for (Message& summary : summaries)
    while (summary.next())
      if (summary.is(1, kBytes))
        read_value(summary.message(), common, out);
}

} // namespace

std::vector<ScalarEvent> read_events(const InputFile& file) {
  constexpr std::uint64_t kHead = 12, kTail = 4;
  std::vector<ScalarEvent> events;
  for (std::uint64_t at = 0; at < file.size();) {
    std::string head(kHead, '\0');
    file.read_at(at, std::as_writable_bytes(std::span(head)));
    const std::string_view length_bytes = std::string_view(head).substr(0, 8);
    if (masked_crc32c(std::as_bytes(std::span(length_bytes))) != fixed(head.substr(8)))
      file.fail(at, "damaged: the checksum of a record's length does not fit");
    const std::uint64_t length = fixed(length_bytes), left = file.size() - at - kHead;
    if (left < kTail || length > left - kTail)
      file.fail(at, "a record of {} bytes where {} are left", length, left);
    std::string bytes(length + kTail, '\0');
    file.read_at(at + kHead, std::as_writable_bytes(std::span(bytes)));
    const std::string_view data = std::string_view(bytes).substr(0, length);
    if (masked_crc32c(std::as_bytes(std::span(data))) != fixed(bytes.substr(length)))
      file.fail(at + kHead, "damaged: the checksum of a record does not fit");
    read_event(Message(file, at + kHead, data), events);
    at += kHead + length + kTail;
  }
  return events;
}

std::vector<ScalarEvent> load_events(const std::filesystem::path& path) {
  return read_events(InputFile("events", path));
}

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::filesystem::path new_event_file(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    fail(ErrorKind::File, "events: {}: cannot make the folder: {}", folder.string(),
         error.message());
  std::array<char, 256> name = {}; // ends with a zero, whatever gethostname writes before it
  const bool known = ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0';
  const char* host = known ? name.data() : "localhost";
  static std::atomic<unsigned> counter = 0;
  return folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}",
                              static_cast<std::int64_t>(seconds_now()), host, ::getpid(),
                              counter++);
}

} // namespace

TensorBoardLog::TensorBoardLog(const std::filesystem::path& folder)
    : path_(new_event_file(folder)), file_(std::make_unique<AppendFile>("events", path_)) {
  file_->write(version_record(seconds_now()));
}

TensorBoardLog::~TensorBoardLog() = default;

void TensorBoardLog::write(std::int64_t step, const Measurements& values) {
  file_->write(scalars_record(seconds_now(), step, values));
}

} // namespace egret::io
