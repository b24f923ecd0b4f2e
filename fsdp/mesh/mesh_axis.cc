// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/mesh_axis.h"

#include <string>
#include <utility>
#include <vector>

namespace fsdp {

std::vector<MeshAxis> GridAxes(const std::vector<int64_t>& shape,
                               const std::vector<std::string>& names,
                               int64_t stride) {
  std::vector<MeshAxis> axes(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    axes[i].extents = {{.size = shape[i], .stride = stride}};
    if (!names.empty()) axes[i].name = names[i];
    stride *= shape[i];
  }
  return axes;
}

int64_t AxisSize(const MeshAxis& axis) {
  int64_t size = 1;
  for (const MeshExtent& extent : axis.extents) size *= extent.size;
  return size;
}

std::vector<MeshExtent> Canonical(const MeshAxis& axis) {
  std::vector<MeshExtent> extents;
  for (const MeshExtent& extent : axis.extents) {
    if (extent.size == 1) continue;
    if (!extents.empty() &&
        extents.back().stride == extent.size * extent.stride) {
      extents.back() = {.size = extents.back().size * extent.size,
                        .stride = extent.stride};
    } else {
      extents.push_back(extent);
    }
  }
  return extents;
}

bool Overlap(const MeshAxis& a, const MeshAxis& b) {
  for (const MeshExtent& x : a.extents) {
    for (const MeshExtent& y : b.extents) {
      if (x.size > 1 && y.size > 1 && x.stride < y.stride * y.size &&
          y.stride < x.stride * x.size) {
        return true;
      }
    }
  }
  return false;
}

std::vector<int64_t> AxisOffsets(const MeshAxis& axis) {
  std::vector<int64_t> offsets = {0};
  for (const MeshExtent& extent : axis.extents) {
    std::vector<int64_t> finer;
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < extent.size; ++i) {
        finer.push_back(offset + i * extent.stride);
      }
    }
    offsets = std::move(finer);
  }
  return offsets;
}

int64_t CoordinateOn(const MeshAxis& axis, int64_t index) {
  int64_t coordinate = 0;
  for (const MeshExtent& extent : axis.extents) {
    coordinate = coordinate * extent.size + index / extent.stride % extent.size;
  }
  return coordinate;
}

std::vector<int64_t> SpannedPlaces(const std::vector<MeshAxis>& axes,
                                   int64_t through) {
  std::vector<int64_t> places = {through};
  for (const MeshAxis& axis : axes) {
    const std::vector<int64_t> offsets = AxisOffsets(axis);
    const int64_t own = offsets[CoordinateOn(axis, through)];
    std::vector<int64_t> finer;
    for (const int64_t place : places) {
      for (const int64_t offset : offsets) {
        finer.push_back(place - own + offset);
      }
    }
    places = std::move(finer);
  }
  return places;
}

}  // namespace fsdp
