from mirrorlake.runtime.daemon import prefer_package


def test_the_zip_of_an_installed_pyspark_is_left_out() -> None:
    zip_of_package = "/venv/site-packages/pyspark/python/lib/pyspark.zip"
    path = ["", zip_of_package, "/venv/site-packages/pyspark/python/lib/py4j-0.10.9.9-src.zip", "/venv/site-packages"]
    assert prefer_package(path) == ["", path[2], path[3]]


def test_the_zip_of_another_spark_stays() -> None:
    path = ["/opt/spark/python/lib/pyspark.zip", "/venv/site-packages"]
    assert prefer_package(path) == path
