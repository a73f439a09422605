// Which Tensor objects outside of a traced function led it to the tensors that it captured: a call
// reads through them, so that binding one of them to another tensor is seen.
#pragma once

#include "egret/tensor.h"
#include "tensor/engine_lock.h"

#include <memory>

namespace egret::detail {

/// A Tensor object that a traced function read, for as long as the object exists and holds
/// something. What it is bound to at a call is what the function would see in that call.
class Owner {
public:
  explicit Owner(const Tensor* object) : object(object) {}
  ~Owner(); ///< takes calls_mutex()
  Owner(const Owner&) = delete;
  const Tensor* object; ///< (calls_mutex) null: it was destroyed, emptied or moved from
};
using OwnerPtr = std::shared_ptr<Owner>;

/// Guards owners, Handle::mark and which value a handle has: a call takes the values that it reads
/// and claims the states that it writes, all of them at one moment. Never held while something is
/// computed or compiled, nor when an OwnerPtr is dropped.
/// Entered while a handle gets another value outside of a call: updates of several threads need not
/// wait for each other.
StreamsMutex& calls_mutex() noexcept;
/// An update of this thread, for as long as it lives. Nothing is let go meanwhile.
class Updating {
public:
  Updating();
  ~Updating();
  Updating(const Updating&) = delete;

private:
  Stream& stream_;
};

/// The owner at a Tensor object's address. Its handle is marked as watched, so that the object
/// reports when it is bound to another one.
OwnerPtr watch(const Tensor& object);
/// A Tensor object whose handle is watched is destroyed or moved from.
void object_gone(const Tensor* object) noexcept;
/// Binds a Tensor object whose old handle is watched, or that was given to watch() while empty.
/// Gives the old handle, to be let go by the caller.
void rebind_watched(Tensor& object, std::shared_ptr<Handle>& handle) noexcept;

} // namespace egret::detail
