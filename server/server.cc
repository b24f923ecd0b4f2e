// SPDX-License-Identifier: Apache-2.0
// How a server shuts down:
//
//   1. Health becomes NOT_SERVING and the services refuse new calls, so that
//      clients and load balancers go elsewhere. The port stays open, because
//      both still ask.
//   2. Calls and jobs in progress may end, until the deadline or Stop.
//   3. Remaining jobs are stopped; the journal records where they continue.
//   4. gRPC cancels the remaining calls, including health's own streams, and
//      the port is closed.
#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "dcp/base/check.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/base/thread.h"
#include "dcp/io/file_system.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/rpc_time.h"
#include "server/access/access.h"
#include "server/access/admission.h"
#include "server/access/root_watch.h"
#include "server/access/state_dir.h"
#include "server/jobs/job_journal.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/job_service.h"
#include "server/jobs/journal_statement.h"
#include "server/jobs/journal_watch.h"
#include "server/jobs/operations_service.h"
#include "server/memory/memory_budget.h"
#include "server/memory/memory_shares.h"
#include "server/process/log_text.h"
#include "server/process/metrics.h"
#include "server/process/option_value.h"
#include "server/process/problems.h"
#include "server/process/process_metrics.h"
#include "server/process/steady_alarm.h"
#include "server/reading/checkpoint_service.h"
#include "server/transport/acceptor.h"
#include "server/transport/call_log.h"
#include "server/transport/compression.h"
#include "server/transport/connection_metrics.h"
#include "server/transport/guarded_connections.h"
#include "server/transport/listener.h"
#include "server/transport/reflection_service.h"
#include "server/transport/request_gate.h"
#include "server/transport/self_call.h"
#include "server/transport/service_health.h"
#include "server/transport/tls_files.h"

namespace dcp::server {
namespace {

// A client that has vanished is detected after kPingEvery plus kPingTimeout.
constexpr absl::Duration kPingEvery = absl::Minutes(1);
constexpr absl::Duration kPingTimeout = absl::Seconds(20);
// Clients that ping more often than this are disconnected.
constexpr absl::Duration kMinPingInterval = absl::Seconds(10);
// The time to connect and complete the TLS handshake; slower clients only
// occupy a descriptor.
constexpr absl::Duration kHandshakeTimeout = absl::Seconds(20);
// A token and a deadline take some hundred bytes.
constexpr int kMaxMetadataBytes = 16 << 10;
// Calls of one connection in addition to streams: unary calls, health and
// reflection.
constexpr int64_t kOtherCalls = 100;
// The same for all connections together, with many unary calls.
constexpr int64_t kOtherCallsOfAll = 2000;
// gRPC's own buffers for requests and connections; beyond this, connections are
// closed. Payload is counted in the memory budget.
constexpr size_t kTransportBytes = size_t{512} << 20;
constexpr absl::Duration kJournalWatchInterval = absl::Seconds(5);
// Long enough for people to renew a certificate manually.
constexpr absl::Duration kExpiryWarningTime = absl::Hours(24 * 30);
// gRPC must not make threads for calls; no service asks for it.
constexpr int kMaxSyncThreads = 16;

constexpr absl::Duration kRootWatchInterval = absl::Seconds(5);

// All services that a client may call.
constexpr const char* kServices[] = {
    kCheckpointServiceName,
    kJobServiceName,
    kOperationsName,
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
};

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

int64_t CallsPerConnection(const ServerOptions& options) {
  return options.max_streams + kOtherCalls;
}

void SetLimits(const ServerOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_request_bytes));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             Milliseconds(kPingEvery));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             Milliseconds(kPingTimeout));
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      Milliseconds(kMinPingInterval));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             Milliseconds(kHandshakeTimeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(CallsPerConnection(options)));
  // A second server on the same port must get an error, instead of a random
  // share of the connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  BoundDecompression(options.max_request_bytes);
  grpc::ResourceQuota quota("dcp-server");
  quota.Resize(kTransportBytes);
  quota.SetMaxThreads(kMaxSyncThreads);
  builder.SetResourceQuota(quota);
}

// The address with the chosen port in place of 0.
std::string WithPort(absl::string_view address, int port) {
  if (absl::StartsWith(address, "unix:")) return std::string(address);
  return absl::StrCat(address.substr(0, address.rfind(':') + 1), port);
}

TlsPaths TlsFilePaths(const ServerOptions& options) {
  return {.cert = options.tls_cert,
          .key = options.tls_key,
          .client_ca = options.tls_client_ca};
}

absl::Status CheckListen(const ServerOptions& options) {
  if (!options.tls_cert.empty() || options.allow_insecure ||
      IsLoopback(options.listen)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "listen on ", options.listen, " without TLS: other machines reach it"));
}

}  // namespace

struct Server::Impl {
  Impl(const ServerOptions& all_options, Access checked_access,
       StateDir taken_dir, std::unique_ptr<JobJournal> opened_journal,
       ServerTls loaded_tls, std::unique_ptr<FileSystem> file_system)
      : options(all_options),
        access(std::move(checked_access)),
        state_dir(std::move(taken_dir)),
        journal(std::move(opened_journal)),
        tls(std::move(loaded_tls)),
        expiry_seconds(absl::ToUnixSeconds(tls.expiry())),
        fs(std::move(file_system)),
        budget(options.max_memory_bytes,
               DivideMemory(options.max_memory_bytes, options.num_readers)
                   .calls_bytes),
        admission(access,
                  {.num_streams = StreamsPerClient(options),
                   .memory_bytes = ClientMemoryBytes(options),
                   .requests_per_second = options.max_requests_per_second}),
        calls(metrics, &gate),
        runner(*fs, access, options) {}

  // In the order of their dependencies.
  const ServerOptions options;
  Access access;
  const StateDir state_dir;
  const std::unique_ptr<JobJournal> journal;
  ServerTls tls;
  // when tls's certificate expires, for scrapers
  std::atomic<int64_t> expiry_seconds;
  std::atomic<int64_t> reload_seconds = absl::ToUnixSeconds(absl::Now());
  const std::unique_ptr<FileSystem> fs;
  Metrics metrics;
  MemoryBudget budget;
  Admission admission;
  const RequestGateContext gate{admission, budget, options.max_request_bytes};
  CallLog calls;
  // Set when the server is started; the gauges use it.
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<ServiceHealth> health;
  std::unique_ptr<RootWatch> root_watch;
  std::vector<std::shared_ptr<void>> gauges;
  const JobRunner runner;
  // Set when the server is started, as are the services.
  std::unique_ptr<JobManager> jobs;
  std::unique_ptr<JournalWatch> journal_watch;
  std::unique_ptr<CheckpointService> checkpoint_service;
  std::unique_ptr<JobService> job_service;
  std::unique_ptr<OperationsService> operations_service;
  ReflectionService reflection_service{
      {std::begin(kServices), std::end(kServices)}};
  ReflectionAlphaService reflection_alpha_service{reflection_service};
  std::unique_ptr<grpc::Server> grpc_server;
  std::optional<SelfCall> self_call;

  void AddGauges();
  void Keep(std::vector<std::shared_ptr<void>> more_gauges);
  absl::Status Accept(
      Listener listener,
      std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc);
  absl::Status StartServices();
  absl::Status StartWatches();
  absl::StatusOr<std::string> Start();
  void WarnAboutExpiry() const;
  void CheckAlive();
  void StopAll();
  void Drain();
};

void Server::Impl::Keep(std::vector<std::shared_ptr<void>> more_gauges) {
  std::move(more_gauges.begin(), more_gauges.end(), std::back_inserter(gauges));
}

void Server::Impl::AddGauges() {
  Keep(AddProcessMetrics(metrics));
  if (tls.expiry() != absl::InfiniteFuture()) {
    gauges.push_back(metrics.AddGauge(
        "tessera_certificate_expiry_seconds",
        "When the server's certificate expires, since 1970.",
        [this] { return static_cast<double>(expiry_seconds); }));
  }
  gauges.push_back(metrics.AddGauge(
      "tessera_calls", "Calls in progress.",
      [this] { return static_cast<double>(calls.num_calls()); }));
  gauges.push_back(metrics.AddGauge(
      "tessera_last_reload_seconds",
      "When tokens and certificates were last read, since 1970. It stays when "
      "they cannot be read.",
      [this] { return static_cast<double>(reload_seconds); }));
  gauges.push_back(metrics.AddCounter(
      "tessera_journal_errors_total", "Errors of the journal of jobs.",
      [] { return static_cast<double>(NumJournalErrors()); }));
  gauges.push_back(metrics.AddGauge(
      "tessera_state_free_bytes",
      "Free bytes of the disk of state-dir; 0 if that was removed.", [this] {
        return static_cast<double>(journal->FreeBytes().value_or(0));
      }));
  gauges.push_back(metrics.AddGauge(
      "tessera_memory_used_bytes",
      "Memory for payload that jobs and streams hold.",
      [this] { return static_cast<double>(budget.used_bytes()); }));
  gauges.push_back(metrics.AddGauge(
      "tessera_memory_limit_bytes",
      "Memory for payload that jobs and streams may hold.",
      [this] { return static_cast<double>(budget.limit_bytes()); }));
  gauges.push_back(metrics.AddGauge(
      "tessera_memory_waiting", "Jobs and streams that wait for memory.",
      [this] { return static_cast<double>(budget.num_waiting()); }));
}

absl::Status Server::Impl::StartServices() {
  checkpoint_service = std::make_unique<CheckpointService>(
      *fs, admission, budget, metrics, options);
  DCP_RETURN_IF_ERROR(checkpoint_service->Start());
  DCP_ASSIGN_OR_RETURN(
      jobs, JobManager::Start(*journal, runner, budget, metrics, options));
  job_service = std::make_unique<JobService>(*jobs, runner, admission,
                                             options.disk_timeout);
  operations_service = std::make_unique<OperationsService>(*jobs, admission);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Server::Impl::Start() {
  DCP_CHECK(jobs == nullptr, "started already");
  AddGauges();
  if (!options.metrics_listen.empty()) {
    DCP_ASSIGN_OR_RETURN(const int port,
                         metrics.Listen(options.metrics_listen));
    DCP_LOG(kInfo) << "event=metrics address="
                   << WithPort(options.metrics_listen, port);
  }
  DCP_ASSIGN_OR_RETURN(Listener listener, Listener::Open(options.listen));
  DCP_RETURN_IF_ERROR(StartServices());
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  SetLimits(options, builder);
  // Owners: this function, and the acceptor's callback.
  const std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor>
      connections = builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::
              FROM_FD,
          tls.credentials());
  builder.RegisterService(checkpoint_service.get());
  builder.RegisterService(job_service.get());
  builder.RegisterService(operations_service.get());
  builder.RegisterService(&reflection_service);
  builder.RegisterService(&reflection_alpha_service);
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  interceptors.push_back(calls.NewInterceptorFactory());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  grpc_server = builder.BuildAndStart();
  DCP_CHECK(grpc_server != nullptr, "gRPC did not start");
  self_call.emplace(*grpc_server);
  DCP_RETURN_IF_ERROR(StartWatches());
  const std::string address = listener.address();
  DCP_RETURN_IF_ERROR(Accept(std::move(listener), connections));
  return address;
}

absl::Status Server::Impl::StartWatches() {
  std::vector<WatchedRoot> roots = DirectoryRoots(access.server());
  std::vector<size_t> numbers;
  for (const WatchedRoot& root : roots) numbers.push_back(root.number);
  health =
      std::make_unique<ServiceHealth>(*grpc_server->GetHealthCheckService(),
                                      access.server().roots().size(), numbers);
  DCP_ASSIGN_OR_RETURN(journal_watch,
                       JournalWatch::Start(*journal, kJournalWatchInterval,
                                           [this](const absl::Status& status) {
                                             jobs->Hold(!status.ok());
                                             health->SetJournal(status.ok());
                                           }));
  DCP_ASSIGN_OR_RETURN(
      root_watch,
      RootWatch::Start(
          std::move(roots),
          {.interval = kRootWatchInterval, .timeout = options.disk_timeout},
          [this](const WatchedRoot& root, const RootCondition& now) {
            health->SetRoot(root.number, now.readable.ok(), now.usable.ok());
          }));
  Keep(AddRootGauges(*root_watch, metrics));
  return absl::OkStatus();
}

absl::Status Server::Impl::Accept(
    Listener listener,
    std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc) {
  const ConnectionLimits limits = {
      .max_connections = ConnectionsWithinFileLimit(options.max_connections),
      .max_per_address = options.max_connections_per_address};
  if (limits.max_connections < options.max_connections) {
    DCP_LOG(kWarning) << "event=max_connections_lowered from="
                      << options.max_connections
                      << " to=" << limits.max_connections
                      << " why=\"the limit of open files\"";
  }
  ProcessCallLoad().max_calls = options.max_streams + kOtherCallsOfAll;
  ProcessCallLoad().max_open_per_connection = CallsPerConnection(options);
  const Encryption encryption =
      options.tls_cert.empty() ? Encryption::kNone : Encryption::kTls;
  acceptor = std::make_unique<Acceptor>(
      std::move(listener), limits,
      [encryption, grpc = std::move(grpc)](int listener_fd, int fd) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
            connection;
        connection.listener_fd = listener_fd;
        connection.fd = fd;
        GuardConnection(fd, encryption,
                        [&] { grpc->HandleNewConnection(&connection); });
      });
  DCP_RETURN_IF_ERROR(acceptor->Start());
  Keep(AddConnectionMetrics(*acceptor, metrics));
  WarnAboutExpiry();
  return absl::OkStatus();
}

void Server::Impl::WarnAboutExpiry() const {
  const absl::Duration left = tls.expiry() - absl::Now();
  if (left > kExpiryWarningTime) return;
  DCP_LOG(kWarning) << "event=certificate_expires time="
                    << absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", tls.expiry(),
                                        absl::UTCTimeZone())
                    << " days=" << left / absl::Hours(24);
}

// Takes the locks that nobody holds while waiting for a disk or a client, and
// lets gRPC's threads answer.
void Server::Impl::CheckAlive() {
  budget.num_waiting();
  calls.num_calls();
  jobs->num_running();
  acceptor->num_open();
  access.FindClient("");
  self_call->WaitForAnswer();
}

void Server::Impl::StopAll() {
  calls.Interrupt();
  // Ends the concurrent Drain early.
  if (jobs != nullptr) jobs->Drain(absl::ZeroDuration());
}

void Server::Impl::Drain() {
  if (grpc_server == nullptr) return;
  DCP_LOG(kInfo) << "event=drain calls=" << calls.num_calls();
  if (auto* served = grpc_server->GetHealthCheckService(); served != nullptr) {
    served->Shutdown();
  }
  checkpoint_service->Drain();
  bool idle = false;
  {
    SteadyAlarm deadline;
    // Without a thread for the deadline nobody would end jobs that take longer.
    if (!deadline.Start(options.drain, [this] { StopAll(); }).ok()) StopAll();
    const auto drain_jobs = [this] { jobs->Drain(absl::InfiniteDuration()); };
    const absl::StatusOr<Thread> drainer = Thread::Start(drain_jobs);
    if (!drainer.ok()) drain_jobs();
    idle = calls.WaitUntilIdle();
  }
  journal_watch.reset();
  if (root_watch != nullptr) root_watch->Stop();
  if (acceptor != nullptr) acceptor->Stop();
  self_call->End();
  grpc_server->Shutdown(RpcTimeIn(absl::ZeroDuration()));
  grpc_server->Wait();
  grpc_server = nullptr;
  DCP_LOG(kInfo) << "event=stop clean=" << (idle ? "yes" : "no");
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  Stop();
  Drain();
}

absl::Status Server::Check(const ServerOptions& options) {
  Problems problems;
  problems.Add(CheckListen(options));
  problems.Add(Access::Load(options.roots, options.tokens_file).status());
  problems.Add(ServerTls::Load(TlsFilePaths(options)).status());
  problems.Add(StateDir::Check(options.state_dir, options.roots));
  return problems.status();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Create(
    const ServerOptions& options, std::unique_ptr<FileSystem> fs) {
  DCP_RETURN_IF_ERROR(CheckListen(options));
  DCP_ASSIGN_OR_RETURN(Access access,
                       Access::Load(options.roots, options.tokens_file));
  DCP_ASSIGN_OR_RETURN(ServerTls tls, ServerTls::Load(TlsFilePaths(options)));
  DCP_ASSIGN_OR_RETURN(StateDir state_dir,
                       StateDir::Open(options.state_dir, options.roots));
  DCP_ASSIGN_OR_RETURN(std::unique_ptr<JobJournal> journal,
                       JobJournal::Open(state_dir.path()));
  return std::unique_ptr<Server>(new Server(std::make_unique<Impl>(
      options, std::move(access), std::move(state_dir), std::move(journal),
      std::move(tls), std::move(fs))));
}

absl::StatusOr<std::string> Server::Start() { return impl_->Start(); }

void Server::Drain() { impl_->Drain(); }

void Server::Reload() {
  const auto tell = [](absl::string_view what, const absl::Status& status) {
    if (status.ok()) {
      DCP_LOG(kInfo) << "event=reload of=" << what;
    } else {
      DCP_LOG(kError) << "event=reload_failed of=" << what
                      << " error=" << LogText(status.message());
    }
  };
  const absl::Status tokens = impl_->access.Reload();
  const absl::Status certificates = impl_->tls.Reload();
  tell("tokens", tokens);
  tell("certificates", certificates);
  if (tokens.ok() && certificates.ok()) {
    impl_->reload_seconds = absl::ToUnixSeconds(absl::Now());
  }
  impl_->expiry_seconds = absl::ToUnixSeconds(impl_->tls.expiry());
  impl_->WarnAboutExpiry();
  impl_->calls.EndRevoked();
  if (impl_->jobs != nullptr) impl_->jobs->StopRevoked();
}

void Server::WarnAboutExpiry() const { impl_->WarnAboutExpiry(); }

void Server::CheckAlive() { impl_->CheckAlive(); }

void Server::Stop() { impl_->StopAll(); }

}  // namespace dcp::server
