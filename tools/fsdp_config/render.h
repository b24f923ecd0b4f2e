// SPDX-License-Identifier: Apache-2.0
// The output of fsdp-config. Pure; any thread.
#ifndef TOOLS_FSDP_CONFIG_RENDER_H_
#define TOOLS_FSDP_CONFIG_RENDER_H_

#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "config/explain/explain.h"
#include "config/model/train_config.h"

namespace fsdp::tools {

// The texts that findings are about, by file name.
using Sources = std::map<std::string, std::string>;

// "problem: run.yaml:7: ...", problems first, each kind in line order. Below
// each is the source line, if there is one, with the column marked.
std::string RenderFindings(const Findings& findings,
                           const Sources& sources = {}, bool color = false);
// "2 problems, 1 change, 3 without effect"; "nothing to report" without any.
std::string RenderCounts(const Findings& findings);
// {"dialect": ... or null, "findings": [{"kind", "file", "line", "column",
// "key", "text"}]}, on one line.
std::string FindingsJson(std::optional<ConfigDialect> dialect,
                         const Findings& findings);

// Several paragraphs.
std::string RenderExplanation(const TrainConfig& config,
                              const Explanation& explanation);
std::string ExplanationJson(ConfigDialect dialect, const TrainConfig& config,
                            const Explanation& explanation,
                            const Findings& findings);

// The result of to-fsdp2 and convert: {"dialect", "findings", "text"}, or
// "output_file" instead of "text" if a file name is given.
std::string WrittenJson(std::optional<ConfigDialect> dialect,
                        const Findings& findings, absl::string_view text,
                        absl::string_view output_file);

}  // namespace fsdp::tools

#endif  // TOOLS_FSDP_CONFIG_RENDER_H_
