// SPDX-License-Identifier: Apache-2.0
// Loads from a real daemon, over real processes, checkpoints that other meshes
// and formats left there.

#include "fsdp/checkpoint/source/open_source.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "client/backoff.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/io/file_system.h"
#include "fsdp/checkpoint/async_saver.h"
#include "fsdp/checkpoint/checkpoint_manager.h"
#include "fsdp/checkpoint/export.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/layouts.h"
#include "tests/fsdp/checkpoint/test_daemon.h"
#include "tests/testing/certificates.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace fsdp {
namespace {

using ::dcp::testing::Authority;
using ::dcp::testing::CertificateFiles;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::fsdp::testing::ExpectEqual;
using ::fsdp::testing::Layout;
using ::fsdp::testing::Layouts;
using ::fsdp::testing::MakeMesh;
using ::fsdp::testing::MakeState;
using ::fsdp::testing::Placed;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::TestDaemon;
using ::testing::AllOf;
using ::testing::HasSubstr;

void Convert(const std::string& src, const std::string& dst,
             const std::vector<std::string>& include = {}) {
  dcp::ConvertOptions options;
  options.selection.include = include;
  options.consolidate = true;
  EXPECT_OK(dcp::ConvertCheckpoint(*dcp::NewPosixFileSystem(), src, dst,
                                   std::move(options)));
}

dcp::client::RetryOptions QuickRetry() {
  dcp::client::RetryOptions retry;
  retry.first_wait = absl::Milliseconds(1);
  retry.max_wait = absl::Milliseconds(5);
  return retry;
}

// Only the model, as a state to load into or to compare with.
StateDict MakeModelState(const Layout& layout, const DeviceMesh& mesh,
                         bool filled) {
  return {{"model", *MakeState(layout, mesh, filled).find("model")}};
}

TEST(DaemonLoad, LoadsEveryMeshAndFormatOntoEveryMesh) {
  const TestDaemon daemon;
  const auto for_each_layout = [&](int world, auto body) {
    RunRanks(
        world,
        [&] {
          init_process_group();
          for (const Layout& layout : Layouts()) {
            if (layout.world() == world) body(layout, MakeMesh(layout));
          }
        },
        daemon.ForRanks());
  };
  for_each_layout(2, [&](const Layout& layout, const DeviceMesh& mesh) {
    EXPECT_OK(save(MakeState(layout, mesh, true), daemon.Path(layout.name)));
  });
  if (daemon.is_here()) {
    Convert(daemon.Path("rows2"), daemon.Path("full.pt"));
    Convert(daemon.Path("rows2"), daemon.Path("model.safetensors"),
            {"model.*"});
  }
  for (const int world : {1, 2, 4}) {
    for_each_layout(world, [&](const Layout& layout, const DeviceMesh& mesh) {
      for (const std::string& name : std::vector<std::string>{
               "rows2", "replicated", "full.pt", "model.safetensors"}) {
        const auto state_of = [&](bool filled) {
          return name == "model.safetensors"
                     ? MakeModelState(layout, mesh, filled)
                     : MakeState(layout, mesh, filled);
        };
        const auto expect = [&](bool from_rank0, bool broadcast) {
          SCOPED_TRACE(absl::StrCat(name, " on ", layout.name, " ", from_rank0,
                                    broadcast));
          StateDict state = state_of(false);
          const TorchLoadOptions options{.broadcast_to_replicas = broadcast};
          ASSERT_OK(from_rank0
                        ? load_from_rank0(state, daemon.Url(name), options)
                        : load(state, daemon.Url(name), options));
          ExpectEqual(StateValue(state), StateValue(state_of(true)), "");
        };
        expect(false, true);
        expect(false, false);
        expect(true, true);
      }
    });
  }
}

TEST(DaemonLoad, ReportsTheSameErrorsAsFiles) {
  const TestDaemon daemon;
  RunRanks(
      2,
      [&] {
        init_process_group();
        const std::string path = daemon.Path("c");
        const std::string url = daemon.Url("c");
        ASSERT_OK(save({{"a", at::ones({3})}, {"n", 5}}, path));
        const auto expect_same = [&](auto load_function,
                                     const StateDict& wanted,
                                     const std::string& what) {
          StateDict state = wanted;
          const absl::Status local = load_function(state, path);
          const absl::Status remote = load_function(state, url);
          EXPECT_EQ(remote.code(), local.code());
          EXPECT_EQ(absl::StrReplaceAll(remote.message(), {{url, path}}),
                    local.message());
          EXPECT_THAT(std::string(remote.message()), HasSubstr(what));
          ExpectEqual(StateValue(state), StateValue(wanted), "");
        };
        const auto expect = [&](const StateDict& wanted,
                                const std::string& what) {
          expect_same(
              [](StateDict& s, const std::string& p) { return load(s, p); },
              wanted, what);
          expect_same(
              [](StateDict& s, const std::string& p) {
                return load_from_rank0(s, p);
              },
              wanted, what);
        };
        StateDict missing{{"a", at::zeros({3})}, {"n", 0}};
        if (get_rank() == 1) missing["other"] = at::zeros({1});
        expect(missing, "lacks other");
        expect({{"a", at::zeros({4})}, {"n", at::zeros({1})}},
               "a is stored as [3], but requested as [4]");
        expect({{"a", at::zeros({3}, at::kLong)}, {"n", 0}},
               "a is stored as float32, which cannot be converted to int64");
        // The next load succeeds, and leaves absent entries as they are.
        EXPECT_OK(load(missing, url, {.allow_partial_load = true}));
        EXPECT_EQ(*missing.find("n")->get_if<int64_t>(), 5);
        EXPECT_THAT(load(missing, daemon.Url("none")),
                    StatusIs(absl::StatusCode::kNotFound,
                             HasSubstr(daemon.Url("none"))));
      },
      daemon.ForRanks());
}

TEST(DaemonLoad, ConvertsFloatsAndFillsMemoryOfAnyStrides) {
  const TestDaemon daemon;
  const at::Tensor whole = at::arange(35, at::kFloat).view({7, 5});
  ASSERT_OK(save({{"a", whole},
                  {"odd *?[name]\\", 1},
                  {"empty", at::zeros({0, 3})},
                  {"number", at::full({}, 2.5)}},
                 daemon.Path("c")));
  const at::Tensor target = at::zeros({5, 10}, at::kBFloat16);
  StateDict state{{"a", target.narrow(1, 2, 7).t()},
                  {"odd *?[name]\\", 0},
                  {"empty", at::zeros({0, 3})},
                  {"number", at::zeros({})}};
  dcp::TransferStats stats;
  ASSERT_OK(load(state, daemon.Url("c"), {.stats = &stats}));
  EXPECT_TRUE(at::equal(target.narrow(1, 2, 7).t(), whole.to(at::kBFloat16)));
  EXPECT_TRUE(
      at::equal(target.narrow(1, 0, 2), at::zeros({5, 2}, at::kBFloat16)));
  EXPECT_EQ(*state.find("odd *?[name]\\")->get_if<int64_t>(), 1);
  EXPECT_EQ(state.find("number")->get_if<at::Tensor>()->item<double>(), 2.5);
  EXPECT_EQ(stats.bytes_read, 35 * 2 + 4);
  EXPECT_EQ(stats.num_reads, 1);
}

// Larger than the windows that a small budget has.
TEST(DaemonLoad, StreamsThroughASmallBudget) {
  const TestDaemon daemon;
  const auto whole = [] {
    return at::arange(3001 * 701, at::kFloat).view({3001, 701});
  };
  RunRanks(
      2,
      [&] {
        init_process_group();
        const DeviceMesh mesh = init_device_mesh("cpu", {2});
        const StateDict saved{{"a", Placed(whole(), mesh, {Shard(0)})},
                              {"b", at::ones({1 << 20})}};
        ASSERT_OK(save(saved, daemon.Path("c")));
        for (const bool from_rank0 : {false, true}) {
          at::Tensor a = at::zeros({701, 3001}).t();
          StateDict state{{"a", a}, {"b", at::zeros({1 << 20})}};
          TorchLoadOptions options;
          options.memory_bytes = uint64_t{4} << 20;
          options.broadcast_to_replicas = false;
          // Only rank 0 has to know how to reach the daemon.
          std::string url = daemon.Url("c");
          if (from_rank0 && get_rank() == 1) {
            url = "tessera://nobody:1/c";
          }
          ASSERT_OK(from_rank0 ? load_from_rank0(state, url, options)
                               : load(state, url, options));
          EXPECT_TRUE(at::equal(a, whole()));
          EXPECT_TRUE(at::equal(*state.find("b")->get_if<at::Tensor>(),
                                at::ones({1 << 20})));
        }
      },
      daemon.ForRanks());
}

TEST(DaemonLoad, MissingDaemonIsUnavailableOnAllRanks) {
  TestDaemon daemon;
  daemon.Stop();
  RunRanks(
      2,
      [&] {
        init_process_group();
        StateDict state{{"a", at::zeros({1})}};
        TorchLoadOptions options;
        options.daemon.retry = QuickRetry();
        for (const bool from_rank0 : {false, true}) {
          EXPECT_THAT(
              from_rank0 ? load_from_rank0(state, daemon.Url("c"), options)
                         : load(state, daemon.Url("c"), options),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("rank"), HasSubstr(daemon.Url("c")))));
        }
      },
      daemon.ForRanks());
}

TEST(DaemonLoad, RequiresTokenAndCertificate) {
  const TempDir dir;
  Authority authority(dir, "ca");
  const CertificateFiles files = authority.Sign("server");
  dcp::server::ServerOptions server;
  server.tls_cert = files.cert;
  server.tls_key = files.key;
  // The digest of "alice".
  server.tokens_file = dir.WriteFile(
      "tokens",
      "alice "
      "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90\n");
  const TestDaemon daemon(server);
  ASSERT_OK(save({{"n", 5}}, daemon.Path("c")));
  StateDict state{{"n", 0}};
  TorchLoadOptions options;
  options.daemon.retry = QuickRetry();
  options.daemon.ca_file = authority.cert();
  options.daemon.token_file = dir.WriteFile("wrong", "bob");
  const std::string url = daemon.Url("c");
  EXPECT_THAT(load(state, url, options),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr(url)));
  options.daemon.token_file = dir.WriteFile("right", "alice\n");
  EXPECT_OK(load(state, url, options));
  EXPECT_EQ(*state.find("n")->get_if<int64_t>(), 5);
  options.daemon.ca_file = dir.Join("none");
  EXPECT_THAT(load(state, url, options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none")));
  options.daemon.ca_file = "";
  EXPECT_THAT(load(state, url, options),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST(DaemonLoad, AnAddressMayComeFromTheOptions) {
  const TestDaemon daemon;
  ASSERT_OK(save({{"n", 5}}, daemon.Path("c")));
  StateDict state{{"n", 0}};
  const std::string url = absl::StrCat("tessera://", daemon.Path("c"));
  TorchLoadOptions options;
  EXPECT_THAT(load(state, url, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("address is missing")));
  options.daemon.address = daemon.address();
  EXPECT_OK(load(state, url, options));
  EXPECT_EQ(*state.find("n")->get_if<int64_t>(), 5);
}

TEST(DaemonLoad, StopsOnRequest) {
  const TestDaemon daemon;
  ASSERT_OK(save({{"a", at::ones({3})}}, daemon.Path("c")));
  StateDict state{{"a", at::zeros({3})}};
  std::stop_source stop;
  TorchLoadOptions options;
  options.stop = stop.get_token();
  EXPECT_OK(load(state, daemon.Url("c"), options));
  stop.request_stop();
  EXPECT_THAT(load(state, daemon.Url("c"), options),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_OK(load(state, daemon.Url("c")));
}

TEST(DaemonLoad, RefusesSaves) {
  const std::string url = "tessera://host:7420/runs/a";
  const auto refused = [&](const absl::Status& status,
                           const std::string& what) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr(url), HasSubstr(what))));
  };
  StateDict state{{"n", 5}};
  refused(save(state, url), "a save works on files");
  refused(async_save(state, url).status(), "a save works on files");
  CheckpointManager manager(url, {.save_every = 1, .save_on_sigterm = false});
  refused(manager.save(1, state), "a checkpoint manager works on files");
  refused(manager.latest().status(), "a checkpoint manager works on files");
  refused(manager.resume(state).status(), "a checkpoint manager");
  refused(export_full(url, "model.pt"), "an export works on files");
  refused(export_full("c", url), "an export works on files");
}

TEST(SavePath, OneFileIsRefusedForBackgroundSaves) {
  StateDict state{{"n", 5}};
  for (const std::string name : {"x.pt", "x.pth", "x.bin", "x.safetensors"}) {
    const TempDir dir;
    EXPECT_THAT(async_save(state, dir.Join(name)).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(name), HasSubstr("call save"),
                               HasSubstr("export_full(directory, "))));
  }
}

}  // namespace
}  // namespace fsdp
