// What fsdp-config prints. Pure; any thread.
#ifndef TOOLS_FSDP_CONFIG_RENDER_H_
#define TOOLS_FSDP_CONFIG_RENDER_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "fsdp/config/explain.h"
#include "fsdp/config/findings.h"
#include "fsdp/config/train_config.h"

namespace fsdp::tools {

// One line each: "problem: run.yaml:7: ...", problems first, each kind
// in the order of lines.
std::string RenderFindings(const Findings& findings);
// "2 problems, 1 change, 3 without effect"; "nothing to say" without any.
std::string RenderCounts(const Findings& findings);
// {"dialect": ... or null, "findings": [{"kind", "file", "line", "column",
// "key", "text"}]}, on one line.
std::string FindingsJson(std::optional<Dialect> dialect,
                         const Findings& findings);

// Several paragraphs.
std::string RenderExplanation(const TrainConfig& config,
                              const Explanation& explanation);
std::string ExplanationJson(Dialect dialect, const TrainConfig& config,
                            const Explanation& explanation);

}  // namespace fsdp::tools

#endif  // TOOLS_FSDP_CONFIG_RENDER_H_
