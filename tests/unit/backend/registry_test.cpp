// The list of backends, and the names of devices.
#include "backend/all/backends.h"
#include "support/fail.h"

#include <gtest/gtest.h>

namespace egret::backend {
namespace {

Diagnosis two_of_three() {
  return {true,
          "",
          {{"driver", "1.3"}},
          {{"toy:0", true, "a toy"}, {"toy:1", false, "it is broken"}, {"toy:2", true, "another"}}};
}
std::unique_ptr<Device> none(int index) {
  fail(ErrorKind::Device, "toy:{}: there is no such device", index);
}

/// A machine with a processor and a backend that nothing but this list knows of.
BackendRegistry with_toys() {
  Backend host;
  host.name = "host";
  host.diagnose = [] { return Diagnosis{true, "", {}, {{"host", true, "a processor"}}}; };
  host.open = none;
  Backend toy{"toy", true, two_of_three, none, nullptr};
  return BackendRegistry({host, toy});
}

std::string refused(const BackendRegistry& registry, std::string_view name) {
  try {
    registry.parse(name, "test");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Value);
    return error.what();
  }
  ADD_FAILURE() << name << " was taken";
  return {};
}

TEST(Backends, ANewRowIsAllThatNamesNeed) {
  const BackendRegistry registry = with_toys();
  EXPECT_EQ(registry.parse("toy", "test"), (DeviceName{"toy", 0}));
  EXPECT_EQ(registry.parse("toy:12", "test"), (DeviceName{"toy", 12}));
  EXPECT_EQ(registry.parse("host", "test"), (DeviceName{"host", 0}));
  EXPECT_EQ(registry.text({"toy", 3}), "toy:3");
  EXPECT_EQ(registry.text({"host", 0}), "host");
  EXPECT_EQ(registry.choices(), "host, toy or toy:N");
  for (const char* wrong : {"", "host:0", "toy:", "toy:-1", "toy:1x", "cuda", "toys"})
    EXPECT_EQ(refused(registry, wrong),
              "test: `" + std::string(wrong) +
                  "` is no device: host, toy, or toy:0, toy:1 ... name one");
}

TEST(Backends, DevicesThatCannotBeUsedAreNotListed) {
  const BackendRegistry registry = with_toys();
  std::vector<std::string> names;
  for (const FoundDevice& device : registry.usable_devices())
    names.push_back(device.name);
  EXPECT_EQ(names, (std::vector<std::string>{"host", "toy:0", "toy:2"}));
  EXPECT_EQ(registry.diagnose({"toy", 1}).components.at(0).second, "1.3");
  EXPECT_THROW(registry.open({"toy", 7}), Error);
  EXPECT_THROW(registry.open({"other", 0}), InternalError);
}

TEST(Backends, EveryRowOfThisBuildIsComplete) {
  ASSERT_EQ(backends().list().front().name, "cpu");
  for (const Backend& backend : backends().list()) {
    EXPECT_TRUE(backend.open != nullptr && backend.diagnose != nullptr) << backend.name;
    const Diagnosis found = backend.diagnose();
    EXPECT_EQ(found.usable, found.why_not.empty()) << backend.name;
    EXPECT_EQ(backends().parse(backend.name, "test").backend, backend.name);
  }
}

} // namespace
} // namespace egret::backend
