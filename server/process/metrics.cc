// SPDX-License-Identifier: Apache-2.0

#include "server/process/metrics.h"

#include <exception>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/check.h"
#include "dcp/base/version.h"
#include "prometheus/collectable.h"
#include "prometheus/counter.h"
#include "prometheus/exposer.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace dcp::server {
namespace {

// Each is a thread that sleeps. There are enough that clients which connect
// without sending a request, for at most kRequestTimeoutMs, leave some for a
// scraper.
constexpr int kListenThreads = 32;
constexpr int kRequestTimeoutMs = 2000;

// A gauge that the owner may remove while a scraper calls it. The lock is not
// held during the call, so the owner's locks may be taken in any order.
class Gauge {
 public:
  // The type of `family` is Gauge, or Counter if the values only go up. `label`
  // is the name of the label; empty: there is one value, without a label.
  Gauge(prometheus::MetricFamily family, std::string label,
        std::function<std::vector<LabeledValue>()> values)
      : family_(std::move(family)),
        label_(std::move(label)),
        values_(std::move(values)) {}

  std::optional<prometheus::MetricFamily> Collect() {
    {
      absl::MutexLock lock(&mutex_);
      if (removed_) return std::nullopt;
      ++num_calls_;
    }
    prometheus::MetricFamily family = family_;
    for (const LabeledValue& value : values_()) {
      prometheus::ClientMetric& metric = family.metric.emplace_back();
      if (!label_.empty()) metric.label.push_back({label_, value.label});
      (family.type == prometheus::MetricType::Counter ? metric.counter.value
                                                      : metric.gauge.value) =
          value.value;
    }
    {
      absl::MutexLock lock(&mutex_);
      --num_calls_;
      idle_.SignalAll();
    }
    return family;
  }

  void Remove() {
    absl::MutexLock lock(&mutex_);
    removed_ = true;
    while (num_calls_ > 0) idle_.Wait(&mutex_);
  }

 private:
  const prometheus::MetricFamily family_;  // without values
  const std::string label_;
  const std::function<std::vector<LabeledValue>()> values_;
  absl::Mutex mutex_;
  absl::CondVar idle_;
  int num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool removed_ ABSL_GUARDED_BY(mutex_) = false;
};

class Gauges : public prometheus::Collectable {
 public:
  void Add(std::weak_ptr<Gauge> gauge) {
    absl::MutexLock lock(&mutex_);
    std::erase_if(gauges_, [](const auto& old) { return old.expired(); });
    gauges_.push_back(std::move(gauge));
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<std::weak_ptr<Gauge>> gauges;
    {
      absl::MutexLock lock(&mutex_);
      gauges = gauges_;
    }
    std::vector<prometheus::MetricFamily> families;
    for (const std::weak_ptr<Gauge>& weak : gauges) {
      const std::shared_ptr<Gauge> gauge = weak.lock();
      if (gauge == nullptr) continue;
      std::optional<prometheus::MetricFamily> family = gauge->Collect();
      if (family.has_value()) families.push_back(*std::move(family));
    }
    return families;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<std::weak_ptr<Gauge>> gauges_ ABSL_GUARDED_BY(mutex_);
};

prometheus::Family<prometheus::Counter>& NewCounters(
    prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

std::function<std::vector<LabeledValue>()> OneValue(
    std::function<double()> value) {
  return [value = std::move(value)] {
    return std::vector<LabeledValue>{{.label = "", .value = value()}};
  };
}

// Inspect takes milliseconds, a stream may take minutes.
const std::vector<double>& RequestSeconds() {
  static const auto& bounds = *new std::vector<double>{
      .001, .005, .01, .05, .1, .5, 1, 5, 10, 60, 600, 3600};
  return bounds;
}

const std::vector<double>& JobSeconds() {
  static const auto& bounds = *new std::vector<double>{
      .1, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600};
  return bounds;
}

}  // namespace

struct Metrics::Impl {
  Impl() {
    prometheus::BuildGauge()
        .Name("tessera_build_info")
        .Help("1; the label says which version runs.")
        .Register(*registry)
        .Add({{"version", kVersion}})
        .Set(1);
  }

  // A shared_ptr, because the exposer keeps weak references to it.
  std::shared_ptr<prometheus::Registry> registry =
      std::make_shared<prometheus::Registry>();
  std::shared_ptr<Gauges> gauges = std::make_shared<Gauges>();
  prometheus::Family<prometheus::Counter>& requests = NewCounters(
      *registry, "tessera_requests_total", "Calls that have ended, by code.");
  prometheus::Family<prometheus::Counter>& client_requests =
      NewCounters(*registry, "tessera_client_requests_total",
                  "Calls of a client with a token that have ended, by code.");
  prometheus::Family<prometheus::Counter>& client_bytes =
      NewCounters(*registry, "tessera_client_streamed_bytes_total",
                  "Payload that a client with a token received.");
  prometheus::Family<prometheus::Counter>& jobs =
      NewCounters(*registry, "tessera_jobs_total", "Jobs that have ended.");
  prometheus::Family<prometheus::Counter>& bytes = NewCounters(
      *registry, "tessera_bytes_total",
      "Payload that was read from disks, written to disks, streamed "
      "to clients, and streamed without another read.");
  prometheus::Family<prometheus::Histogram>& request_seconds =
      prometheus::BuildHistogram()
          .Name("tessera_request_seconds")
          .Help("How long calls took.")
          .Register(*registry);
  prometheus::Family<prometheus::Histogram>& job_seconds =
      prometheus::BuildHistogram()
          .Name("tessera_job_seconds")
          .Help("How long jobs took, from their last start to their end.")
          .Register(*registry);
  std::unique_ptr<prometheus::Exposer> exposer;

  std::shared_ptr<void> Add(prometheus::MetricFamily family,
                            const std::string& label,
                            std::function<std::vector<LabeledValue>()> values) {
    // Owners: the handle and, during a call, the scraper.
    auto gauge =
        std::make_shared<Gauge>(std::move(family), label, std::move(values));
    gauges->Add(gauge);
    return std::shared_ptr<void>(
        nullptr, [gauge = std::move(gauge)](void*) { gauge->Remove(); });
  }
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::CountRequest(absl::string_view method, absl::string_view code) {
  impl_->requests
      .Add({{"method", std::string(method)}, {"code", std::string(code)}})
      .Increment();
}

void Metrics::CountClientRequest(absl::string_view client,
                                 absl::string_view code) {
  impl_->client_requests
      .Add({{"client", std::string(client)}, {"code", std::string(code)}})
      .Increment();
}

void Metrics::CountClientBytes(absl::string_view client, uint64_t bytes) {
  impl_->client_bytes.Add({{"client", std::string(client)}})
      .Increment(static_cast<double>(bytes));
}

void Metrics::CountJob(absl::string_view kind, absl::string_view state) {
  impl_->jobs.Add({{"kind", std::string(kind)}, {"state", std::string(state)}})
      .Increment();
}

void Metrics::CountBytes(absl::string_view what, uint64_t bytes) {
  impl_->bytes.Add({{"what", std::string(what)}})
      .Increment(static_cast<double>(bytes));
}

void Metrics::ObserveRequest(absl::string_view method, absl::Duration time) {
  impl_->request_seconds
      .Add({{"method", std::string(method)}}, RequestSeconds())
      .Observe(absl::ToDoubleSeconds(time));
}

void Metrics::ObserveJob(absl::string_view kind, absl::Duration time) {
  impl_->job_seconds.Add({{"kind", std::string(kind)}}, JobSeconds())
      .Observe(absl::ToDoubleSeconds(time));
}

std::shared_ptr<void> Metrics::AddGauge(const std::string& name,
                                        const std::string& help,
                                        std::function<double()> value) {
  return impl_->Add({name, help, prometheus::MetricType::Gauge, {}}, "",
                    OneValue(std::move(value)));
}

std::shared_ptr<void> Metrics::AddGauges(
    const std::string& name, const std::string& help, const std::string& label,
    std::function<std::vector<LabeledValue>()> values) {
  return impl_->Add({name, help, prometheus::MetricType::Gauge, {}}, label,
                    std::move(values));
}

std::shared_ptr<void> Metrics::AddCounter(const std::string& name,
                                          const std::string& help,
                                          std::function<double()> value) {
  return impl_->Add({name, help, prometheus::MetricType::Counter, {}}, "",
                    OneValue(std::move(value)));
}

absl::StatusOr<int> Metrics::Listen(const std::string& address) {
  DCP_CHECK(impl_->exposer == nullptr, "it already listens");
  try {
    impl_->exposer =
        std::make_unique<prometheus::Exposer>(std::vector<std::string>{
            "listening_ports", address, "num_threads",
            absl::StrCat(kListenThreads), "request_timeout_ms",
            absl::StrCat(kRequestTimeoutMs)});
  } catch (const std::exception& e) {
    return absl::UnavailableError(
        absl::StrCat("metrics at ", address, ": ", e.what()));
  }
  impl_->exposer->RegisterCollectable(impl_->registry);
  impl_->exposer->RegisterCollectable(impl_->gauges);
  return impl_->exposer->GetListeningPorts().front();
}

std::string Metrics::Text() const {
  std::vector<prometheus::MetricFamily> families = impl_->registry->Collect();
  for (prometheus::MetricFamily& family : impl_->gauges->Collect()) {
    families.push_back(std::move(family));
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

}  // namespace dcp::server
