// The sections of the directory that an agent's services give (group/resources.h). The services outlive them.
#pragma once

#include <functional>
#include <vector>

#include "exchange/exchange_service.h"
#include "group/group.h"
#include "group/resources.h"
#include "plugin/workers.h"
#include "pool/members/pools.h"
#include "sift/sift_service.h"

namespace offpath::agent {

// /members, and by rack and role those that live.
[[nodiscard]] std::vector<group::ResourceSection> member_sections(const group::Group& group);
// Pools that the user may read; pools where services keep objects of their own are left out.
[[nodiscard]] group::ResourceSection pool_section(const pool::Pools& pools);
[[nodiscard]] group::ResourceSection sift_section(const sift::SiftService& sifts);
[[nodiscard]] group::ResourceSection exchange_section(const exchange::ExchangeService& exchanges);
// Functions of the configuration's plug-ins; those that programs bring are their own.
[[nodiscard]] group::ResourceSection function_section(std::function<std::vector<plugin::PluginStatus>()> plugins,
                                                      std::function<std::uint64_t()> changes);

}  // namespace offpath::agent
