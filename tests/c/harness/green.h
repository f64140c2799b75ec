/* Commands about green contexts. Included by harness.c, whose names it uses. */
#ifndef HARNESS_GREEN_H
#define HARNESS_GREEN_H

static CUresult make_green(CUgreenCtx *out) {
    CUdevResource all;
    CUdevResourceDesc desc;
    CUresult code = cu.device_resource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (!code) code = cu.resource_desc(&desc, &all, 1);
    return code ? code : cu.green_create(out, desc, device, CU_GREEN_CTX_DEFAULT_STREAM);
}

static int green_command(const char *command, char **w, int n) {
    CUresult code = 0;
    struct thing *green = n > 1 ? find(GREEN, w[1]) : NULL;
    if (IS("green", 2)) code = make_green((CUgreenCtx *)&green->value);
    else if (IS("green-context", 3)) {
        /* green-context GREEN CONTEXT: the context that stands for it, made current */
        struct thing *context = find(CONTEXT, w[2]);
        if (!(code = cu.green_context((CUcontext *)&context->value, (CUgreenCtx)green->value)))
            code = cu.ctx_set((CUcontext)context->value);
    } else if (IS("green-stream", 3)) {
        /* green-stream GREEN STREAM */
        CUstream *stream = (CUstream *)&find(STREAM, w[2])->value;
        code = cu.green_stream(stream, (CUgreenCtx)green->value, CU_STREAM_NON_BLOCKING, 0);
    } else if (IS("destroy-green", 2)) code = cu.green_destroy((CUgreenCtx)green->value);
    else return 0;
    say(command, code, "");
    return 1;
}

#endif
