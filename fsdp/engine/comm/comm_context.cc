// SPDX-License-Identifier: Apache-2.0
// Creates the communication streams, and holds buffers until they are read.
// Tested by tests/fsdp/fsdp_module_test.cc.
#include "fsdp/engine/comm/comm_context.h"

#include <utility>

#include "c10/core/impl/VirtualGuardImpl.h"

namespace fsdp {

CommContext::CommContext(c10::Device device) : device_(device) {
  if (device.is_cpu() || device.is_meta()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  copy_in_ = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  all_gather_ = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  reduce_scatter_ =
      guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  all_reduce_ = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

CommContext::~CommContext() { ReleaseGather(); }

c10::Stream CommContext::current() const {
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
}

EventPtr CommContext::Record(c10::Stream stream) const {
  if (!has_streams()) return nullptr;
  auto event = std::make_shared<c10::Event>(device_.type());
  event->record(stream);
  return event;
}

EventPtr CommContext::RecordCurrent() const {
  return has_streams() ? Record(current()) : nullptr;
}

void CommContext::Wait(c10::Stream stream, const EventPtr& event) {
  if (event) event->block(stream);
}

void CommContext::WaitOnCurrent(const EventPtr& event) const {
  if (event) event->block(current());
}

void CommContext::BeginGathers(const EventPtr& event) {
  if (!has_streams()) return;
  Wait(*copy_in_, event ? event : RecordCurrent());
}

void CommContext::HoldGather(std::vector<at::Tensor> tensors, EventPtr read) {
  if (!has_streams()) return;
  ReleaseGather();
  held_gather_ = std::move(tensors);
  held_gather_event_ = std::move(read);
}

void CommContext::ReleaseGather() {
  if (held_gather_.empty()) return;
  Wait(*copy_in_, held_gather_event_);
  held_gather_.clear();
  held_gather_event_ = nullptr;
}

}  // namespace fsdp
