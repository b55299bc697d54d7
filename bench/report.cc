#include "report.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "commit.h"
#include "machine.h"

#ifndef OFFPATH_COMMIT
#define OFFPATH_COMMIT "unknown"
#endif

namespace offpath::bench {
namespace {

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// JSON has neither NaN nor infinity.
std::string json_number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

std::string json_array(const std::vector<double>& values) {
  std::string out = "[";
  for (std::size_t i = 0; i < values.size(); ++i) out += (i == 0 ? "" : ", ") + json_number(values[i]);
  return out + "]";
}

std::string json_claim(const Claim& claim) {
  std::string out = fmt::format(
      "{{\"claim\": {}, \"value\": {}, \"unit\": {}, \"peer\": {}, \"peer_value\": {}, \"ratio\": {}, \"target\": {}, "
      "\"holds\": {}",
      json_text(claim.claim), json_number(claim.value), json_text(claim.unit),
      claim.peer.empty() ? "null" : json_text(claim.peer), json_number(claim.peer_value), json_number(claim.ratio),
      claim.target ? json_text(claim.target->text()) : "null", claim.holds());
  if (claim.interval) {
    out += fmt::format(", \"interval\": [{}, {}]", json_number(claim.interval->low), json_number(claim.interval->high));
  }
  if (claim.pairs != 0) out += fmt::format(", \"pairs\": {}", claim.pairs);
  for (const auto& [key, text] :
       {std::pair{"why", &claim.why}, {"detail", &claim.detail}, {"peer_waits", &claim.peer_waits}}) {
    if (!text->empty()) out += fmt::format(", \"{}\": {}", key, json_text(*text));
  }
  if (claim.simulated) out += ", \"simulated\": true";
  return out + "}";
}

std::string figure_text(double value, std::string_view unit) {
  if (!std::isfinite(value)) return "-";
  return unit.empty() ? fmt::format("{:.3g}", value) : fmt::format("{:.4g} {}", value, unit);
}

std::string commit() {
  const char* given = std::getenv("OFFPATH_COMMIT");
  if (given != nullptr) return given;
  std::error_code unknown;
  return commit_of(std::filesystem::read_symlink("/proc/self/exe", unknown), OFFPATH_COMMIT);
}

}  // namespace

bool Target::met_by(double figure) const noexcept {
  if (std::isnan(figure)) return false;
  return bound == Bound::at_most ? figure <= limit : figure >= limit;
}

std::string Target::text() const {
  const char* sign = bound == Bound::at_most ? "<=" : ">=";
  return unit.empty() ? fmt::format("{} {:g}{}", sign, limit, of == Of::ratio && limit >= 1 ? "x" : "")
                      : fmt::format("{} {:g} {}", sign, limit, unit);
}

bool Claim::holds() const noexcept {
  if (!why.empty()) return false;
  if (!target) return std::isfinite(value) || std::isfinite(ratio);
  return target->met_by(target->of == Target::Of::value ? value : ratio);
}

void Report::add_unmeasured(std::string claim, std::string unit, Target target, std::string why) {
  Claim unmeasured;
  unmeasured.claim = std::move(claim);
  unmeasured.unit = std::move(unit);
  unmeasured.target = target;
  unmeasured.why = why.empty() ? "not measured" : std::move(why);
  add(std::move(unmeasured));
}

bool Report::all_hold() const noexcept {
  return std::all_of(claims_.begin(), claims_.end(), [](const Claim& claim) { return claim.holds(); });
}

std::string Report::json() const {
  std::string out = fmt::format("{{\"bench\": {}, \"commit\": {}, \"machine\": {},\n \"claims\": [", json_text(bench_),
                                json_text(commit()), json_text(machine_description()));
  for (std::size_t i = 0; i < claims_.size(); ++i) out += (i == 0 ? "\n  " : ",\n  ") + json_claim(claims_[i]);
  out += "\n ],\n \"series\": [";
  for (std::size_t i = 0; i < series_.size(); ++i) {
    const Series& series = series_[i];
    out += fmt::format("{}{{\"figure\": {}, \"name\": {}, \"x_unit\": {}, \"y_unit\": {}, \"x\": {}, \"y\": {}}}",
                       i == 0 ? "\n  " : ",\n  ", json_text(series.figure), json_text(series.name),
                       json_text(series.x_unit), json_text(series.y_unit), json_array(series.x), json_array(series.y));
  }
  return out + "\n ]}\n";
}

std::string Report::table() const {
  std::string out =
      fmt::format("{:<52} {:>14} {:>14} {:>8} {:>14}  holds\n", bench_, "value", "peer", "ratio", "target");
  for (const Claim& claim : claims_) {
    out += fmt::format("{:<52} {:>14} {:>14} {:>8} {:>14}  {}\n", claim.claim, figure_text(claim.value, claim.unit),
                       figure_text(claim.peer_value, claim.unit), figure_text(claim.ratio, ""),
                       claim.target ? claim.target->text() : "-", claim.holds() ? "yes" : "NO");
    if (!claim.why.empty()) out += fmt::format("    {}\n", claim.why);
  }
  return out;
}

std::string_view Options::other(std::string_view name) const noexcept {
  for (const auto& [key, value] : others) {
    if (key == name) return value;
  }
  return {};
}

Result<std::uint64_t> parse_size(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = std::strtoull(copy.c_str(), &end, 10);
  const std::string_view suffix(end);
  int shift = -1;
  if (suffix.empty()) shift = 0;
  if (suffix == "K" || suffix == "KiB") shift = 10;
  if (suffix == "M" || suffix == "MiB") shift = 20;
  if (suffix == "G" || suffix == "GiB") shift = 30;
  if (end == copy.c_str() || copy[0] == '-' || shift < 0 || errno != 0 || number > (~0ull >> shift)) {
    return fail(Error::invalid, "size '{}': a number with K, M or G (powers of 1024) is expected", text);
  }
  return number << shift;
}

Result<Options> parse_options(int argc, char** argv, const std::vector<std::string>& other_names) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--check") {
      options.check = true;
      continue;
    }
    if (name == "--quick") {
      options.quick = true;
      continue;
    }
    const bool other = std::find(other_names.begin(), other_names.end(), name) != other_names.end();
    const bool known = name == "--json" || name == "--agent" || name == "--host-core" || name == "--agent-core" ||
                       name == "--sizes-max";
    if (!known && !other) return fail(Error::invalid, "option '{}' is unknown", name);
    if (i + 1 == argc) return fail(Error::invalid, "option '{}' needs a value", name);
    const std::string value = argv[++i];
    if (name == "--json") options.json_path = value;
    if (name == "--agent") options.agent = value;
    if (name == "--host-core") options.host_core = std::atoi(value.c_str());
    if (name == "--agent-core") options.agent_core = std::atoi(value.c_str());
    if (name == "--sizes-max") {
      OFP_ASSIGN(options.size_max_bytes, parse_size(value));
    }
    if (other) options.others.emplace_back(name, value);
  }
  return options;
}

int finish(const Report& report, const Options& options) {
  std::fputs(report.table().c_str(), stdout);
  std::fflush(stdout);
  if (!options.json_path.empty()) {
    std::ofstream file(options.json_path);
    file << report.json();
    file.close();
    if (!file) {
      std::fprintf(stderr, "cannot write %s\n", options.json_path.c_str());
      return 2;
    }
  }
  return options.check && !report.all_hold() ? 1 : 0;
}

int run_main(int argc, char** argv, std::string_view bench, const std::vector<std::string>& other_names,
             Status (*body)(const Options&, Report&)) {
  const auto options = parse_options(argc, argv, other_names);
  if (!options) {
    std::fprintf(stderr, "%s\n", options.error().message.c_str());
    return 2;
  }
  Report report{std::string(bench)};
  if (const Status status = body(*options, report); !status) {
    std::fprintf(stderr, "%.*s: %s\n", int(bench.size()), bench.data(), status.error().message.c_str());
    return 2;
  }
  return finish(report, *options);
}

}  // namespace offpath::bench
