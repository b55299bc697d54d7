// Part of the software card (software_card.h): only the functions of this interface that doca_link uses.
#pragma once

#include <doca_error.h>
#include <cstddef>

extern "C" {
struct doca_buf;
struct doca_buf_inventory;
struct doca_mmap;
doca_error_t doca_buf_inventory_create(std::size_t count, doca_buf_inventory** inventory);
doca_error_t doca_buf_inventory_destroy(doca_buf_inventory* inventory);
doca_error_t doca_buf_inventory_start(doca_buf_inventory* inventory);
doca_error_t doca_buf_inventory_buf_get_by_args(doca_buf_inventory* inventory, doca_mmap* map, void* base,
                                                std::size_t length, void* data, std::size_t data_length,
                                                doca_buf** buffer);
}
