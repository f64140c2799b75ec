/* Commands about memory that is bound where it has no address. Included by harness.c, whose names it uses. */
#ifndef HARNESS_BOUND_H
#define HARNESS_BOUND_H

/* Operations for the next "map-array". */
static CUarrayMapInfo queued[64];
static unsigned queue_length;

static CUarrayMapInfo *queue(const struct thing *array, const struct thing *handle) {
    CUarrayMapInfo *info = &queued[queue_length++ % 64];
    *info = (CUarrayMapInfo){.resourceType = (CUresourcetype)array->extra, .deviceBitMask = 1u << device};
    info->resource.array = (CUarray)array->value;
    info->memOperationType = handle ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
    info->memHandle.memHandle = handle ? handle->value : 0;
    return info;
}

/* X Y WIDTH HEIGHT of level 0 */
static void queue_box(CUarrayMapInfo *info, char **box) {
    info->subresource.sparseLevel.offsetX = (unsigned)parse_size(box[0]);
    info->subresource.sparseLevel.offsetY = (unsigned)parse_size(box[1]);
    info->subresource.sparseLevel.extentWidth = (unsigned)parse_size(box[2]);
    info->subresource.sparseLevel.extentHeight = (unsigned)parse_size(box[3]);
    info->subresource.sparseLevel.extentDepth = 1;
}

static int sparse_command(const char *command, char **w, int n) {
    CUresult code = 0;
    struct thing *array = n > 1 ? find(ARRAY, w[1]) : NULL;
    if (IS("sparse", 4) || IS("deferred", 4)) {
        /* sparse ARRAY WIDTH HEIGHT */
        CUDA_ARRAY3D_DESCRIPTOR shape = {parse_size(w[2]), parse_size(w[3]), 0, CU_AD_FORMAT_FLOAT, 1, 0};
        shape.Flags = strcmp(w[0], "sparse") ? CUDA_ARRAY3D_DEFERRED_MAPPING : CUDA_ARRAY3D_SPARSE;
        array->extra = CU_RESOURCE_TYPE_ARRAY;
        code = cu.array_create_3d((CUarray *)&array->value, &shape);
    } else if (IS("sparse-mipmap", 5)) {
        CUDA_ARRAY3D_DESCRIPTOR shape = {parse_size(w[2]), parse_size(w[3]), 0, CU_AD_FORMAT_FLOAT, 1, 0};
        shape.Flags = CUDA_ARRAY3D_SPARSE;
        array->extra = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        code = cu.mipmap_create((CUmipmappedArray *)&array->value, &shape, (unsigned)atoi(w[4]));
    } else if (IS("destroy-sparse", 2)) {
        code = array->extra ? cu.mipmap_destroy((CUmipmappedArray)array->value)
                            : cu.array_destroy((CUarray)array->value);
    } else if (IS("queue-map", 7) || IS("queue-map", 8)) {
        /* queue-map ARRAY HANDLE X Y WIDTH HEIGHT [OFFSET] */
        CUarrayMapInfo *info = queue(array, find(HANDLE, w[2]));
        queue_box(info, w + 3);
        info->offset = n == 8 ? parse_size(w[7]) : 0;
        return 1;
    } else if (IS("queue-unmap", 6)) {
        queue_box(queue(array, NULL), w + 2);
        return 1;
    } else if (IS("queue-map-tail", 4) || IS("queue-unmap-tail", 3)) {
        /* queue-map-tail MIPMAP HANDLE SIZE, queue-unmap-tail MIPMAP SIZE */
        CUarrayMapInfo *info = queue(array, n == 4 ? find(HANDLE, w[2]) : NULL);
        info->subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
        info->subresource.miptail.layer = 0;
        info->subresource.miptail.offset = 0;
        info->subresource.miptail.size = parse_size(w[n - 1]);
        return 1;
    } else if (IS("hold-arrays", 2)) {
        void (*hold)(int) = dlsym(driver_library(), "simgpu_hold_arrays");
        if (hold) hold(atoi(w[1]));
        return hold != NULL;
    } else if (IS("map-array-stream", 2)) {
        code = cu.map_array(queued, queue_length, (CUstream)find(STREAM, w[1])->value);
        queue_length = 0;
    } else if (IS("map-array-many", 1)) {
        /* more than there are, the first of which is wrong */
        static CUarrayMapInfo none;
        code = cu.map_array(&none, 0x7fffffff, NULL);
    } else if (IS("map-array", 1) || IS("map-array-null", 1)) {
        code = cu.map_array(n == 1 && !strcmp(w[0], "map-array") ? queued : NULL, queue_length, NULL);
        queue_length = 0;
    } else return 0;
    say(command, code, "");
    return 1;
}

static int multicast_command(const char *command, char **w, int n) {
    CUresult code = 0;
    struct thing *object = n > 1 ? find(HANDLE, w[1]) : NULL;
    if (IS("multicast", 3)) {
        /* multicast OBJECT SIZE, of the one device */
        CUmulticastObjectProp properties = {.numDevices = 1, .size = object->bytes = parse_size(w[2])};
        if (!(code = cu.multicast_create(&object->value, &properties)))
            code = cu.multicast_add_device(object->value, device);
    } else if (IS("bind", 5)) {
        /* bind OBJECT HANDLE SIZE OFFSET */
        code = cu.multicast_bind(object->value, parse_size(w[4]), find(HANDLE, w[2])->value, 0, parse_size(w[3]), 0);
    } else if (IS("bind-on", 5)) {
        code = cu.multicast_bind_v2(object->value, device, parse_size(w[4]), find(HANDLE, w[2])->value, 0,
                                    parse_size(w[3]), 0);
    } else if (IS("bind-address", 5)) {
        /* bind-address OBJECT RESERVED SIZE OFFSET */
        code = cu.multicast_bind_address(object->value, parse_size(w[4]), find(RESERVED, w[2])->value,
                                         parse_size(w[3]), 0);
    } else if (IS("bind-address-on", 5)) {
        code = cu.multicast_bind_address_v2(object->value, device, parse_size(w[4]), find(RESERVED, w[2])->value,
                                            parse_size(w[3]), 0);
    } else if (IS("unbind", 4)) {
        /* unbind OBJECT SIZE OFFSET */
        code = cu.multicast_unbind(object->value, device, parse_size(w[3]), parse_size(w[2]));
    } else return 0;
    say(command, code, "");
    return 1;
}

#endif
