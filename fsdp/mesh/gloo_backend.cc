// SPDX-License-Identifier: Apache-2.0
// Opens Gloo's network devices and makes Gloo backends.
//
// Tested by tests/fsdp/mesh/process_group_test.cc.
#include "fsdp/mesh/gloo_backend.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/collective_errors.h"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"

namespace fsdp {
namespace {

using c10d::ProcessGroupGloo;
using Devices = std::vector<std::shared_ptr<gloo::transport::Device>>;

constexpr char kInterfaceVariable[] = "GLOO_SOCKET_IFNAME";

// One set for all groups, because each device has its own thread. Never
// destroyed, because groups may outlive static objects.
Devices& OpenDevices() {
  static auto* const devices = new Devices();
  return *devices;
}

c10::intrusive_ptr<c10d::Backend> MakeGloo(const BackendRequest& request) {
  auto options = ProcessGroupGloo::Options::create(request.timeout);
  options->devices = OpenDevices();
  options->group_name = request.name;
  options->global_ranks_in_group = request.ranks;
  return c10::make_intrusive<ProcessGroupGloo>(request.store, request.rank,
                                               request.size, options);
}

}  // namespace

void OpenGlooDevices(const Launch& launch) {
  Devices devices;
  const std::string interfaces =
      GetEnvironment(kInterfaceVariable).value_or("");
  WithContext(
      [&] {
        return absl::StrCat("Gloo found no network to use (",
                            kInterfaceVariable, "=", interfaces,
                            " names the interface)");
      },
      [&] {
        for (const absl::string_view name :
             absl::StrSplit(interfaces, ',', absl::SkipWhitespace())) {
          devices.push_back(
              ProcessGroupGloo::createDeviceForInterface(std::string(name)));
        }
        if (!devices.empty()) return;
        devices.push_back(
            launch.one_machine
                ? ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                : ProcessGroupGloo::createDefaultDevice());
      });
  OpenDevices() = std::move(devices);
}

void CloseGlooDevices() { OpenDevices().clear(); }

BackendKind GlooBackend() {
  return {.name = "gloo",
          .device_type = c10::DeviceType::CPU,
          .type = c10d::ProcessGroup::BackendType::GLOO,
          .is_available = [] { return true; },
          .make = MakeGloo};
}

}  // namespace fsdp
