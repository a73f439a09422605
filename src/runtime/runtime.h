// The process's one runtime: a device, its memory pool, and the store of compiled programs.
#pragma once

#include "backend/common/registry.h"
#include "runtime/plan_store.h"
#include "runtime/program.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace egret::runtime {

/// How graphs are run.
enum class Engine : std::uint8_t {
  Compiled,    ///< compiled to machine code of the device in use
  Interpreter, ///< compiled to kernel programs, which are interpreted and checked: slow
  Reference,   ///< by the reference executor, node by node: slow, the oracle of tests
};

/// A device in few bits: its place in the order in which devices were numbered. 0 is none of them.
using DeviceNumber = std::uint16_t;
DeviceNumber number_of(const backend::DeviceName& device);
/// Of a number that number_of() has given.
const backend::DeviceName& device_of(DeviceNumber number);

/// While one lives, Runtime is for its thread that of another device; the one made last counts.
/// 0: of the device in use.
class ThreadDevice {
public:
  explicit ThreadDevice(DeviceNumber device) noexcept : before_(exchange(device)) {}
  ~ThreadDevice() { exchange(before_); }
  ThreadDevice(const ThreadDevice&) = delete;
  /// This thread's; 0: that in use.
  static DeviceNumber now() noexcept;
  static DeviceNumber exchange(DeviceNumber device) noexcept; ///< gives the one before

private:
  DeviceNumber before_;
};

/// Everything here is thread-safe. "The device in use" is the thread's (ThreadDevice), or else that
/// of use().
class Runtime {
public:
  /// Made at first use, never destroyed, so that tensors of static duration may outlive main().
  static Runtime& instance();

  StoragePtr allocate(std::size_t bytes);
  Pool& pool(); ///< of the device in use
  /// Of a device, which is opened for it: Error(Device) if it cannot be. The engines that interpret
  /// have a pool of their own, which is the CPU's while one of them is in use.
  Pool& pool(const backend::DeviceName& device);
  /// From byte `at` of the storage on.
  void copy_in(const StoragePtr& to, const void* from, std::size_t bytes, std::size_t at = 0);
  void copy_out(void* to, const StoragePtr& from, std::size_t bytes);
  void copy(const StoragePtr& to, const StoragePtr& from, std::size_t bytes);
  /// Replaces a storage that the device in use cannot work with by a copy that it can work with.
  void bring_here(StoragePtr& storage);

  /// The program for a graph; compiled when the store has none. With options.steady, values may be
  /// kept that are made of such inputs: each program that is given keeps its own.
  std::shared_ptr<const Program> program(const ir::Graph& graph,
                                         const compiler::Options& options = {});
  /// Puts what the runtime's settings say where the options leave it open, as program() does.
  void complete(compiler::Options& options);
  /// Bytes of the programs that are kept (plan_store.h).
  void set_plan_memory(std::size_t bytes);
  void clear_plans();

  /// Compiled for the CPU at the start, or what EGRET_ENGINE names (cpu, interpreter, reference),
  /// or compiled for what EGRET_DEVICE names (cpu, cuda, cuda:1).
  Engine engine() const;
  /// For all that is evaluated from now on; the device stays the one that Compiled is for.
  void use(Engine engine);
  /// Compiled, for this device. What cannot be had is an Error(Device), and nothing changes.
  void use(const backend::DeviceName& device);
  const kernel::Target& target();
  backend::Device& device();
  /// Of use(), whatever the thread's is.
  DeviceNumber device_number() const noexcept;
  /// For what is compiled from now on by options that name none. Error(Value) for a budget that is
  /// not positive, and nothing changes.
  /// Empty: Options::lazy and Options::fuse decide.
  void set_effort(std::optional<Effort> effort, std::optional<double> budget_seconds);
  std::optional<Effort> effort() const;
  double budget_seconds() const;
  void set_frozen(bool frozen);
  bool frozen() const;
  void allow_rules(RuleTags tags);
  RuleTags allowed_rules() const;
  void allow_libraries(bool allowed);
  bool libraries_allowed() const;
  void set_deterministic(bool deterministic);
  bool deterministic() const;
  void set_checked_execution(bool checked);
  bool checked_execution() const;
  void on_search_progress(std::function<bool(const SearchProgress&)> hook);
  /// Another number for each device, engine, effort and set of builders: programs that are kept
  /// were made for one.
  std::uint64_t place() const noexcept;
  /// Another number after use(), set_effort(), set_frozen(), allow_rules(),
  /// allow_libraries(), set_deterministic(), set_checked_execution() and clear_plans(), and when a
  /// builder comes or goes: what keeps programs beside the store asks it.
  std::uint64_t generation() const noexcept;

private:
  Runtime();
  ~Runtime() = delete;
  struct Request;
  std::shared_ptr<const Program> stored(const std::shared_ptr<Request>& request,
                                        const ir::Graph& graph);
  PlanStore::EntryPtr put(const std::shared_ptr<const Request>& request,
                          std::shared_ptr<const Program> program);
  std::shared_ptr<const Program> compiled(const Request& request, const ir::Graph& graph);
  std::shared_ptr<const Program> with_kept(std::shared_ptr<const Program> program,
                                           const ir::Graph& graph,
                                           const compiler::Options& options);
  struct Impl;
  Impl* impl_;
};

} // namespace egret::runtime
