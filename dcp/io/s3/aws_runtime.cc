// SPDX-License-Identifier: Apache-2.0
// Starts and configures Amazon's libraries.
// Tested by tests/dcp/io/s3/s3_store_test.cc.

#include "dcp/io/s3/aws_runtime.h"

#include <aws/common/common.h>
#include <aws/io/channel.h>
#include <aws/io/channel_bootstrap.h>
#include <aws/io/event_loop.h>
#include <aws/io/host_resolver.h>
#include <aws/s3/s3.h>

#include "dcp/base/check.h"

namespace dcp {
namespace {

constexpr uint16_t kNumThreads = 2;
constexpr size_t kMaxHosts = 16;
// The bytes received or sent over a connection at once. Each fragment costs a
// system call and a turn of the event loop, and Amazon's 16 KiB need many.
constexpr size_t kFragmentBytes = size_t{128} << 10;

AwsRuntime MakeRuntime() {
  AwsRuntime runtime;
  runtime.allocator = aws_default_allocator();
  aws_s3_library_init(runtime.allocator);
  g_aws_channel_max_fragment_size = kFragmentBytes;
  runtime.event_loops = aws_event_loop_group_new_default(
      runtime.allocator, kNumThreads, /*shutdown_options=*/nullptr);
  DCP_CHECK(runtime.event_loops != nullptr);
  aws_host_resolver_default_options resolver_options = {};
  resolver_options.el_group = runtime.event_loops;
  resolver_options.max_entries = kMaxHosts;
  aws_client_bootstrap_options options = {};
  options.event_loop_group = runtime.event_loops;
  options.host_resolver =
      aws_host_resolver_new_default(runtime.allocator, &resolver_options);
  DCP_CHECK(options.host_resolver != nullptr);
  runtime.bootstrap = aws_client_bootstrap_new(runtime.allocator, &options);
  DCP_CHECK(runtime.bootstrap != nullptr);
  return runtime;
}

}  // namespace

const AwsRuntime& AwsRuntime::Get() {
  // Never destroyed: the threads may still be at work when the process ends.
  static const AwsRuntime* const runtime = new AwsRuntime(MakeRuntime());
  return *runtime;
}

}  // namespace dcp
