// Part of the software card (software_card.h): only the functions of this interface that doca_link uses.
#pragma once

#include <doca_error.h>
#include <doca_types.h>
#include <cstddef>
#include <cstdint>

extern "C" {
struct doca_dev;
struct doca_devinfo;
struct doca_mmap;
doca_error_t doca_mmap_create(doca_mmap** map);
doca_error_t doca_mmap_destroy(doca_mmap* map);
doca_error_t doca_mmap_start(doca_mmap* map);
doca_error_t doca_mmap_add_dev(doca_mmap* map, doca_dev* dev);
doca_error_t doca_mmap_set_memrange(doca_mmap* map, void* base, std::size_t length);
doca_error_t doca_mmap_get_memrange(const doca_mmap* map, void** base, std::size_t* length);
doca_error_t doca_mmap_set_permissions(doca_mmap* map, std::uint32_t permissions);
doca_error_t doca_mmap_export_pci(doca_mmap* map, const doca_dev* dev, const void** descriptor, std::size_t* length);
doca_error_t doca_mmap_create_from_export(const doca_data* data, const void* descriptor, std::size_t length,
                                          doca_dev* dev, doca_mmap** map);
doca_error_t doca_mmap_cap_is_export_pci_supported(const doca_devinfo* info, std::uint8_t* supported);
doca_error_t doca_mmap_cap_is_create_from_export_pci_supported(const doca_devinfo* info, std::uint8_t* supported);
}
