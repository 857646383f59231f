"""Commands gpuanngraph and gpuannivfpq."""

import os
from typing import Annotated, Any, Unpack

import click
from pydantic import SecretStr

from vectordb_bench.backend.clients import DB

from ....cli.cli import (
    CommonTypedDict,
    cli,
    click_parameter_decorators_from_typed_dict,
    get_custom_case_config,
    run,
)


class GpuannTypedDict(CommonTypedDict):
    user_name: Annotated[
        str, click.option("--user-name", default="postgres", show_default=True, help="Role")
    ]
    password: Annotated[
        str,
        click.option(
            "--password",
            default=lambda: os.environ.get("POSTGRES_PASSWORD", ""),
            show_default="$POSTGRES_PASSWORD",
            help="Its password",
        ),
    ]
    host: Annotated[
        str, click.option("--host", required=True, help="Host, or the directory of a socket")
    ]
    port: Annotated[
        int, click.option("--port", type=int, default=5432, show_default=True, help="Port")
    ]
    db_name: Annotated[
        str, click.option("--db-name", default="postgres", show_default=True, help="Database")
    ]
    table_name: Annotated[
        str,
        click.option(
            "--table-name", default="vdbbench_gpuann", show_default=True, help="Table to make"
        ),
    ]
    column_type: Annotated[
        str,
        click.option(
            "--column-type",
            type=click.Choice(["vector", "halfvec"]),
            default="vector",
            show_default=True,
            help="Type of the column, and so of the index",
        ),
    ]
    iterative_scan: Annotated[
        str | None,
        click.option(
            "--iterative-scan",
            type=click.Choice(["complete", "strict_order", "relaxed_order", "off"]),
            help="gpuann.iterative_scan; by itself complete: never fewer rows than k",
        ),
    ]
    mirror: Annotated[
        bool | None,
        click.option(
            "--mirror/--no-mirror", default=None, help="Whether the server may hold a copy"
        ),
    ]
    maintenance_work_mem: Annotated[
        str | None, click.option("--maintenance-work-mem", help="Memory of the build, as 8GB")
    ]
    max_parallel_workers: Annotated[
        int | None,
        click.option(
            "--max-parallel-workers", type=int, help="max_parallel_maintenance_workers of the build"
        ),
    ]


class GpuannGraphTypedDict(GpuannTypedDict):
    create_index_before_load: Annotated[
        bool,
        click.option(
            "--create-index-before-load/--create-index-after-load",
            default=False,
            help="Insert into the index in place of building it; by itself it is built after",
        ),
    ]
    m: Annotated[int | None, click.option("--m", type=int, help="Half of the degree")]
    ef_construction: Annotated[
        int | None, click.option("--ef-construction", type=int, help="Breadth of the build")
    ]
    ef_search: Annotated[
        int | None, click.option("--ef-search", type=int, help="Breadth of the search")
    ]


class GpuannIVFPQTypedDict(GpuannTypedDict):
    lists: Annotated[int | None, click.option("--lists", type=int, help="Number of lists")]
    quantizer: Annotated[
        str | None,
        click.option(
            "--quantizer",
            type=click.Choice(["rabitq", "pq", "int8"]),
            help="How vectors are shortened",
        ),
    ]
    code_bits: Annotated[
        int | None,
        click.option("--code-bits", type=int, help="Bits a dimension, or a sub-space of pq"),
    ]
    pq_m: Annotated[int | None, click.option("--pq-m", type=int, help="Sub-spaces of pq")]
    probes: Annotated[int | None, click.option("--probes", type=int, help="Lists searched first")]
    rerank: Annotated[
        int | None,
        click.option("--rerank", type=int, help="Rows compared exactly for each row wanted"),
    ]


def _run(case_config: type, parameters: dict[str, Any]) -> None:
    from .config import GpuannConfig

    parameters["custom_case"] = get_custom_case_config(parameters)
    run(
        db=DB.Gpuann,
        db_config=GpuannConfig(
            db_label=parameters["db_label"],
            user_name=SecretStr(parameters["user_name"]),
            password=SecretStr(parameters["password"]),
            host=parameters["host"],
            port=parameters["port"],
            db_name=parameters["db_name"],
            table_name=parameters["table_name"],
        ),
        db_case_config=case_config(
            **{name: parameters[name] for name in case_config.model_fields if name in parameters}
        ),
        **parameters,
    )


@cli.command()
@click_parameter_decorators_from_typed_dict(GpuannGraphTypedDict)
def GpuannGraph(**parameters: Unpack[GpuannGraphTypedDict]):
    from .config import GpuannGraphConfig

    _run(GpuannGraphConfig, parameters)


@cli.command()
@click_parameter_decorators_from_typed_dict(GpuannIVFPQTypedDict)
def GpuannIVFPQ(**parameters: Unpack[GpuannIVFPQTypedDict]):
    from .config import GpuannIVFPQConfig

    _run(GpuannIVFPQConfig, parameters)
