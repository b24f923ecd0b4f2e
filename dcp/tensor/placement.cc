// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/placement.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

// Indices [begin, end) in one dimension.
struct Interval {
  int64_t begin;
  int64_t end;
};

// A rank's indices in one dimension, in increasing order: disjoint intervals
// that do not touch, none of them empty.
using Intervals = absl::InlinedVector<Interval, 2>;

// Piece `index` if `length` elements are cut into `num_pieces` as torch.chunk
// does: all pieces have the same length except for the last ones, which may be
// shorter or empty.
Interval Chunk(int64_t length, int64_t num_pieces, int64_t index) {
  const int64_t piece = length / num_pieces + (length % num_pieces != 0);
  // piece * index may exceed 2^63 by less than the number of pieces.
  const auto limit = static_cast<uint64_t>(length);
  const auto step = static_cast<uint64_t>(piece);
  const uint64_t begin = std::min(limit, step * static_cast<uint64_t>(index));
  return {.begin = static_cast<int64_t>(begin),
          .end = static_cast<int64_t>(std::min(limit, begin + step))};
}

int64_t Length(const Intervals& held) {
  int64_t length = 0;
  for (const Interval& i : held) length += i.end - i.begin;
  return length;
}

// Appends the indices at the positions `slice` in the list that `held`
// represents.
void AppendSlice(const Intervals& held, Interval slice, Intervals& result) {
  int64_t position = 0;
  for (const Interval& i : held) {
    const int64_t length = i.end - i.begin;
    const int64_t from = std::max<int64_t>(slice.begin - position, 0);
    const int64_t to = std::min(slice.end - position, length);
    position += length;
    if (from >= to) continue;
    if (!result.empty() && result.back().end == i.begin + from) {
      result.back().end = i.begin + to;
    } else {
      result.push_back({.begin = i.begin + from, .end = i.begin + to});
    }
  }
}

Intervals ApplyShard(const Intervals& held, int64_t axis_size, int64_t index) {
  Intervals result;
  AppendSlice(held, Chunk(Length(held), axis_size, index), result);
  return result;
}

// Cuts the list into split_factor pieces and takes the rank's part from each.
Intervals ApplyStridedShard(const Intervals& held, int64_t split_factor,
                            int64_t axis_size, int64_t index) {
  Intervals result;
  const int64_t length = Length(held);
  for (int64_t j = 0; j < split_factor; ++j) {
    const Interval piece = Chunk(length, split_factor, j);
    if (piece.begin == piece.end) break;  // so are all later ones
    const Interval part = Chunk(piece.end - piece.begin, axis_size, index);
    AppendSlice(
        held,
        {.begin = piece.begin + part.begin, .end = piece.begin + part.end},
        result);
  }
  return result;
}

// Every combination of one interval per dimension, in row-major order.
std::vector<Box> IntervalBoxes(absl::Span<const Intervals> held) {
  size_t num_boxes = 1;
  for (const Intervals& intervals : held) num_boxes *= intervals.size();
  std::vector<Box> boxes(num_boxes);
  size_t repeat = num_boxes;  // boxes for which a dimension's interval stays
  for (const Intervals& intervals : held) {
    repeat /= intervals.size();
    for (size_t b = 0; b < num_boxes; ++b) {
      const Interval& i = intervals[b / repeat % intervals.size()];
      boxes[b].offsets.push_back(i.begin);
      boxes[b].sizes.push_back(i.end - i.begin);
    }
  }
  return boxes;
}

absl::Status TooManyPieces(absl::Span<const Placement> placements) {
  return absl::InvalidArgumentError(absl::StrCat(
      "placements ", ToString(placements), " cut a tensor into more than ",
      kMaxBoxesPerRank, " pieces for one rank"));
}

absl::Status CheckPlacements(absl::Span<const int64_t> shape, const Mesh& mesh,
                             absl::Span<const Placement> placements) {
  if (placements.size() != mesh.axes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        placements.size(), " placements (", ToString(placements),
        ") for a mesh of ", mesh.axes.size(), " axes (", ToString(mesh), ")"));
  }
  for (const Placement& p : placements) {
    if (p.kind == Placement::Kind::kReplicate) continue;
    if (p.dim < 0 || p.dim >= static_cast<int64_t>(shape.size())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "placement ", ToString({&p, 1}), " does not fit a tensor of ",
          shape.size(), " dimensions"));
    }
    if (p.kind == Placement::Kind::kStridedShard && p.split_factor < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("split factor ", p.split_factor, " is below 1"));
    }
  }
  return absl::OkStatus();
}

bool IsWord(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
           c == '-';
  });
}

absl::Status PlacementError(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "placement \"", text, "\" is not R, S(dim) or SS(dim,split_factor)"));
}

// The numbers between "name(" and ")".
bool ParseArguments(absl::string_view text, absl::string_view name,
                    absl::Span<int64_t> arguments) {
  if (!absl::ConsumePrefix(&text, name) || !absl::ConsumePrefix(&text, "(") ||
      !absl::ConsumeSuffix(&text, ")")) {
    return false;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  if (parts.size() != arguments.size()) return false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!absl::SimpleAtoi(parts[i], &arguments[i])) return false;
  }
  return true;
}

absl::StatusOr<Placement> ParsePlacement(absl::string_view text) {
  if (text == "R") return Placement{};
  Placement result;
  int64_t arguments[2] = {0, 1};
  if (ParseArguments(text, "SS", absl::MakeSpan(arguments))) {
    result.kind = Placement::Kind::kStridedShard;
  } else if (ParseArguments(text, "S", absl::MakeSpan(arguments, 1))) {
    result.kind = Placement::Kind::kShard;
  } else {
    return PlacementError(text);
  }
  result.dim = arguments[0];
  result.split_factor = arguments[1];
  if (result.dim < 0 || result.dim >= static_cast<int64_t>(kMaxDims) ||
      result.split_factor < 1 || result.split_factor > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("placement \"", text, "\": the dim must be 0 to ",
                     kMaxDims - 1, ", the split factor 1 to ", kMaxRanks));
  }
  return result;
}

}  // namespace

int64_t Mesh::num_ranks() const {
  int64_t count = 1;
  for (const Axis& axis : axes) count *= axis.size;
  return count;
}

Dims Mesh::Coordinate(int64_t rank) const {
  DCP_CHECK(rank >= 0 && rank < num_ranks(), "rank ", rank, " of ",
            num_ranks());
  Dims coordinate(axes.size(), 0);
  for (size_t a = axes.size(); a-- > 0;) {
    coordinate[a] = rank % axes[a].size;
    rank /= axes[a].size;
  }
  return coordinate;
}

absl::StatusOr<Mesh> ParseMesh(absl::string_view spec) {
  Mesh mesh;
  int64_t num_ranks = 1;
  for (absl::string_view part : absl::StrSplit(spec, ',')) {
    const std::pair<absl::string_view, absl::string_view> axis =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(axis.first);
    int64_t size;
    if (!IsWord(name) || !absl::SimpleAtoi(axis.second, &size) || size < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mesh \"", spec, "\": \"", part,
          "\" is not name=size; an example is replicate=2,shard=3"));
    }
    for (const Mesh::Axis& other : mesh.axes) {
      if (other.name != name) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("mesh \"", spec, "\": two axes are named ", name));
    }
    if (size > kMaxRanks / num_ranks) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mesh \"", spec, "\" has more than ", kMaxRanks, " ranks"));
    }
    num_ranks *= size;
    mesh.axes.push_back({.name = std::string(name), .size = size});
  }
  return mesh;
}

std::string ToString(const Mesh& mesh) {
  return absl::StrJoin(mesh.axes, ",",
                       [](std::string* out, const Mesh::Axis& axis) {
                         absl::StrAppend(out, axis.name, "=", axis.size);
                       });
}

absl::StatusOr<Placements> ParsePlacements(absl::string_view spec) {
  std::string text(spec);
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  Placements placements;
  size_t begin = 0;
  while (begin <= text.size()) {
    // A comma separates placements unless it is between parentheses.
    size_t end = text.find_first_of(",(", begin);
    if (end != std::string::npos && text[end] == '(') {
      end = text.find(')', end);
      if (end != std::string::npos) end = text.find(',', end);
    }
    if (end == std::string::npos) end = text.size();
    DCP_ASSIGN_OR_RETURN(
        const Placement placement,
        ParsePlacement(absl::string_view(text).substr(begin, end - begin)));
    placements.push_back(placement);
    begin = end + 1;
  }
  return placements;
}

std::string ToString(absl::Span<const Placement> placements) {
  return absl::StrJoin(
      placements, ",", [](std::string* out, const Placement& p) {
        switch (p.kind) {
          case Placement::Kind::kReplicate:
            absl::StrAppend(out, "R");
            break;
          case Placement::Kind::kShard:
            absl::StrAppend(out, "S(", p.dim, ")");
            break;
          case Placement::Kind::kStridedShard:
            absl::StrAppend(out, "SS(", p.dim, ",", p.split_factor, ")");
            break;
        }
      });
}

Placements DefaultPlacements(const Mesh& mesh,
                             absl::Span<const int64_t> shape) {
  Placements placements(mesh.axes.size());
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    if (!shape.empty() && !absl::StrContains(mesh.axes[a].name, "rep")) {
      placements[a].kind = Placement::Kind::kShard;
    }
  }
  return placements;
}

absl::StatusOr<std::vector<Box>> LocalBoxes(
    absl::Span<const int64_t> shape, const Mesh& mesh,
    absl::Span<const Placement> placements,
    absl::Span<const int64_t> coordinate) {
  DCP_RETURN_IF_ERROR(CheckPlacements(shape, mesh, placements));
  DCP_CHECK(coordinate.size() == mesh.axes.size(), "coordinate has ",
            coordinate.size(), " axes");
  absl::InlinedVector<Intervals, 4> held(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 0) held[d].push_back({.begin = 0, .end = shape[d]});
  }
  for (size_t a = 0; a < placements.size(); ++a) {
    const Placement& p = placements[a];
    if (p.kind == Placement::Kind::kReplicate) continue;
    Intervals& dim = held[static_cast<size_t>(p.dim)];
    if (dim.size() > kMaxShardSteps / static_cast<uint64_t>(p.split_factor)) {
      return TooManyPieces(placements);
    }
    dim = p.kind == Placement::Kind::kShard
              ? ApplyShard(dim, mesh.axes[a].size, coordinate[a])
              : ApplyStridedShard(dim, p.split_factor, mesh.axes[a].size,
                                  coordinate[a]);
  }
  bool empty = false;
  for (const Intervals& intervals : held) empty |= intervals.empty();
  if (empty) {
    // One box is enough for no elements, so each dimension gets one interval.
    for (size_t d = 0; d < shape.size(); ++d) {
      if (held[d].empty()) {
        held[d].push_back({.begin = shape[d], .end = shape[d]});
      }
      held[d].resize(1);
    }
  }
  uint64_t num_boxes = 1;
  for (const Intervals& intervals : held) {
    if (intervals.size() > kMaxBoxesPerRank / num_boxes) {
      return TooManyPieces(placements);
    }
    num_boxes *= intervals.size();
  }
  return IntervalBoxes(held);
}

}  // namespace dcp
