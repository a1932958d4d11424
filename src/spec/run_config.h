#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "spec/run_spec.h"

namespace fourfold {

/// Reads a run file (TOML, keys: docs/config.md). `overrides` are "a.b=c", applied in order after
/// the file. The result is complete (preset, family, derived sizes, steps from tokens) and
/// checked, but for what depends on a grid that still has an axis of -1: see resolve_grid.
/// Relative paths stay as they are: they are relative to the current directory, not to the file.
/// Errors are kUsage, with file and line.
Result<RunSpec> load_run(const std::string& path, std::span<const std::string> overrides = {});

/// load_run of text that came from `source` (its name in messages).
Result<RunSpec> parse_run(std::string_view text, const std::string& source,
                          std::span<const std::string> overrides = {});

/// Whether an axis is -1: as many as the ranks leave.
bool grid_is_open(const GridShape& grid);

/// Makes the grid hold exactly `ranks` ranks, filling an axis of -1; 0 ranks: as many as the grid
/// says. Then checks what depends on the grid. Errors are kUsage.
Status resolve_grid(RunSpec& run, int ranks);

/// The whole configuration as TOML that parse_run reads back to the same run. What differs from the
/// default (for [model]: of its preset or family) carries the default in a comment.
std::string resolved_toml(const RunSpec& run);

}  // namespace fourfold
