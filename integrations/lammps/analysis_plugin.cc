// The plug-in of fix offpath/analyse: it runs on the agent, and in LAMMPS itself once the agent is lost.
//
// SPDX-License-Identifier: GPL-2.0-only
#include <offpath/plugin.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "analysis_task.h"
#include "crystal_structures.h"
#include "pair_distances.h"
#include "reference_sums.h"

namespace {

using offpath_lammps::CnaArguments;
using offpath_lammps::Position;
using offpath_lammps::RdfArguments;
using offpath_lammps::ReferenceArguments;
using offpath_lammps::ReferenceAtom;
using offpath_lammps::ReferenceSums;

class Refusal : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct NoOutput {};  // the context has the reason

// Empty without data: the input is not there.
template <class T>
std::span<const T> input(const ofp_context& context, std::string_view name) {
  for (const ofp_input* const each : std::span(context.inputs, context.input_count))
    if (name == std::string_view(static_cast<const char*>(each->column), each->column_bytes))
      return {static_cast<const T*>(each->data), each->bytes / sizeof(T)};
  return {};
}

// One row for each atom.
template <class T>
std::span<const T> rows(const ofp_context& context, std::string_view name, std::size_t atoms) {
  const auto found = input<T>(context, name);
  if (found.data() == nullptr || found.size() != atoms)
    throw Refusal(std::string(name) + " has " + std::to_string(found.size()) + " rows for " + std::to_string(atoms) +
                  " atoms");
  return found;
}

template <class T>
T arguments(const ofp_context& context) {
  T wanted{};
  if (context.arguments_bytes != sizeof wanted) throw Refusal("its arguments have another size");
  std::memcpy(&wanted, context.arguments, sizeof wanted);
  return wanted;
}

// Runs a function, and reports its exception.
template <void (*function)(ofp_context&)>
std::int32_t called(ofp_context* context) {
  try {
    function(*context);
    return 0;
  } catch (const Refusal& why) {
    context->set_error(context, (std::string(context->function) + ": " + why.what()).c_str());
  } catch (const NoOutput&) {
  }
  return 1;
}

void rdf(ofp_context& context) {
  const auto wanted = arguments<RdfArguments>(context);
  const auto x = input<Position>(context, "x");
  if (wanted.own > x.size()) throw Refusal("more own atoms than atoms");
  if (!(wanted.cutoff > 0) || wanted.bins == 0 || wanted.bins > 1u << 20) throw Refusal("cutoff or bins out of range");
  std::vector<std::uint8_t> counted;
  if (wanted.group_bit != 0)
    for (const int each : rows<int>(context, "mask", x.size()))
      counted.push_back((each & wanted.group_bit) != 0 ? 1 : 0);
  auto* const counts = static_cast<std::uint64_t*>(context.output(&context, "counts", wanted.bins * 8, 0));
  if (counts == nullptr) throw NoOutput{};
  offpath_lammps::count_pairs(x, wanted.own, counted, wanted.cutoff, {counts, wanted.bins});
}

void cna(ofp_context& context) {
  const auto wanted = arguments<CnaArguments>(context);
  const auto x = input<Position>(context, "x");
  if (wanted.own > x.size()) throw Refusal("more own atoms than atoms");
  if (!(wanted.cutoff > 0)) throw Refusal("cutoff out of range");
  std::vector<std::uint8_t> counted;
  if (wanted.group_bit != 0)
    for (const int each : rows<int>(context, "mask", wanted.own))
      counted.push_back((each & wanted.group_bit) != 0 ? 1 : 0);
  std::array<std::uint64_t, offpath_lammps::structures> counts{};
  offpath_lammps::count_structures(x, wanted.own, counted, wanted.cutoff, counts);
  void* const given = context.output(&context, "structures", sizeof counts, 0);
  if (given == nullptr) throw NoOutput{};
  std::memcpy(given, counts.data(), sizeof counts);
}

// Calls `add` for each atom of the group with its index and its reference.
template <class Add>
void for_each_atom(const ofp_context& context, std::int64_t group_bit, Add add) {
  const offpath_lammps::ReferenceAtoms reference(input<ReferenceAtom>(context, "reference"));
  const auto ids = input<int>(context, "id");
  const auto mask = group_bit == 0 ? std::span<const int>{} : rows<int>(context, "mask", ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (group_bit != 0 && (mask[i] & group_bit) == 0) continue;
    const ReferenceAtom* const then = reference.find(ids[i]);
    if (then == nullptr) throw Refusal("atom " + std::to_string(ids[i]) + " was not in the group at the reference");
    add(i, *then);
  }
}

void give(ofp_context& context, const ReferenceSums& sums) {
  void* const given = context.output(&context, "sums", sizeof sums, 0);
  if (given == nullptr) throw NoOutput{};
  std::memcpy(given, &sums, sizeof sums);
}

void msd(ofp_context& context) {
  const auto wanted = arguments<ReferenceArguments>(context);
  const std::size_t atoms = input<int>(context, "id").size();
  const auto x = rows<Position>(context, "x", atoms);
  const auto image = rows<int>(context, "image", atoms);
  const auto masses = input<double>(context, "masses");
  const bool by_type = masses.data() != nullptr, by_atom = input<double>(context, "rmass").data() != nullptr;
  const auto types = by_type ? rows<int>(context, "type", atoms) : std::span<const int>{};
  const auto rmass = by_atom ? rows<double>(context, "rmass", atoms) : std::span<const double>{};
  ReferenceSums sums{};
  for_each_atom(context, wanted.group_bit, [&](std::size_t i, const ReferenceAtom& then) {
    double mass = 0;
    if (by_atom) {
      mass = rmass[i];
    } else if (by_type) {
      if (static_cast<std::size_t>(types[i]) >= masses.size()) throw Refusal("an atom has a type without a mass");
      mass = masses[static_cast<std::size_t>(types[i])];
    }
    add_displacement(sums, offpath_lammps::unwrapped(x[i], image[i], wanted.box), then, mass);
  });
  give(context, sums);
}

void vacf(ofp_context& context) {
  const auto wanted = arguments<ReferenceArguments>(context);
  const auto v = rows<Position>(context, "v", input<int>(context, "id").size());
  ReferenceSums sums{};
  for_each_atom(context, wanted.group_bit,
                [&](std::size_t i, const ReferenceAtom& then) { add_velocities(sums, v[i], then); });
  give(context, sums);
}

constexpr ofp_function functions[] = {
    {"rdf", called<rdf>, "Counts pairs of atoms by distance: fix offpath/analyse"},
    {"cna", called<cna>, "Counts atoms by the crystal around them: fix offpath/analyse"},
    {"msd", called<msd>, "Sums squared displacements since a reference: fix offpath/analyse"},
    {"vacf", called<vacf>, "Sums products of velocities with those of a reference: fix offpath/analyse"},
};
constexpr ofp_plugin plugin{OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "lammps", 4, functions};

}  // namespace

extern "C" OFP_PLUGIN_EXPORT const ofp_plugin* offpath_plugin(void) { return &plugin; }
